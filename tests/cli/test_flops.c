/* `flops` of pruned networks: guaranteed and value patterns, network files, wrong requests. */
#include "tests/cli/cnn_files.h"
#include "tests/support/length.h"

static json_t *part(const json_t *document, const char *key) {
  json_t *found = json_object_get(document, key);
  assert_non_null(found);
  return found;
}

/* Totals follow from steps. */
static void check_sums(const json_t *document) {
  const json_t *steps = part(document, "steps"), *totals = part(document, "totals");
  int64_t mm = 0, mv = 0, critical = 0, baseline = 0;
  for (size_t i = 0; i < json_array_size(steps); ++i) {
    const json_t *step = json_array_get(steps, i);
    const bool dead = json_is_true(json_object_get(step, "dead"));
    const bool input = strcmp(get_text(step, "phase"), "input") == 0;
    *(strcmp(get_text(step, "op"), "mm") == 0 ? &mm : &mv) += dead ? 0 : get_integer(step, "flops");
    critical += json_is_true(json_object_get(step, "critical")) ? get_integer(step, "flops") : 0;
    assert_false((dead || input) && json_is_true(json_object_get(step, "critical")));
  }
  const json_t *operators = part(document, "operators");
  for (size_t i = 0; i < json_array_size(operators); ++i) {
    baseline += get_integer(json_array_get(operators, i), "baseline_flops");
  }
  assert_int_equal(mm, get_integer(totals, "mm_flops"));
  assert_int_equal(mv, get_integer(totals, "mv_flops"));
  assert_int_equal(critical, get_integer(totals, "critical_flops"));
  assert_int_equal(baseline, get_integer(document, "baseline_flops"));
}

/* A residual block of docs/networks.md, by hand: a 3 x 3 convolution of 4 to 4 channels has 16 · 22² entries, the first one
 * 12 · 22²; the identities of the sum and of the tensor that lives on beside three layers are no FLOPs. */
static void test_graph(void **state) {
  (void)state;
  enum { CONV = 16 * 22 * 22, FIRST = 12 * 22 * 22, VALUES = 4 * 8 * 8 };
  put_text("graph.json", "{\"input\": [3, 8, 8], \"layers\": ["
                         "{\"name\": \"conv1\", \"op\": \"conv2d\", \"out\": 4, \"kernel\": 3, \"padding\": 1},"
                         "{\"name\": \"relu1\", \"op\": \"relu\"},"
                         "{\"name\": \"conv2\", \"op\": \"conv2d\", \"out\": 4, \"kernel\": 3, \"padding\": 1},"
                         "{\"name\": \"relu2\", \"op\": \"relu\"},"
                         "{\"name\": \"conv3\", \"op\": \"conv2d\", \"out\": 4, \"kernel\": 3, \"padding\": 1},"
                         "{\"name\": \"add\", \"op\": \"add\", \"inputs\": [\"conv3\", \"relu1\"]},"
                         "{\"name\": \"relu3\", \"op\": \"relu\"}, {\"name\": \"fc\", \"op\": \"linear\", \"out\": 10}]}");
  static const int64_t entries[] = {FIRST, VALUES, CONV, VALUES, CONV, 0, VALUES};
  for (int input = 0; input < 2; ++input) {
    json_t *counted = run_json("flops graph.json --up-levels 2 --json%s", input == 1 ? " --input-grad" : "");
    const json_t *operators = part(counted, "operators"), *totals = part(counted, "totals");
    check_sums(counted);
    for (size_t i = 0; i < 7; ++i) {
      assert_int_equal(get_integer(json_array_get(operators, i), "baseline_flops"), i > 0 || input == 1 ? 2 * entries[i] : 0);
    }
    assert_int_equal(get_integer(json_array_get(operators, 5), "rows"), 2 * VALUES);
    assert_int_equal(get_integer(json_array_get(operators, 5), "nnz"), 2 * VALUES);
    assert_int_equal(get_integer(totals, "bp_flops"), 2 * (3 * VALUES + 2 * CONV + input * FIRST));
    assert_int_equal(get_integer(totals, "mm_flops"), 2 * CONV); /* relu2 times conv2; conv3 times the sum only copies */
    assert_int_equal(get_integer(counted, "weight_flops"), 2 * (FIRST + 2 * CONV));
    assert_int_equal(get_integer(counted, "unpruned_baseline_flops"), get_integer(totals, "bp_flops"));
    json_decref(counted);
  }
  json_t *value = run_json("flops graph.json --pattern value --up-levels 2 --json"), *plan = run_json("plan graph.json --json");
  assert_true(get_integer(value, "baseline_flops") < get_integer(value, "unpruned_baseline_flops"));
  assert_int_equal(get_integer(part(plan, "totals"), "bp_flops"), 2 * (3 * VALUES + 2 * CONV));
  json_decref(value);
  json_decref(plan);
  assert_int_equal(remove("graph.json"), 0);
}

/* The facts' order of magnitude for 3 % of VGG-11's weights, seed 0: guaranteed 4e8 in mat-mat products and 5e8 on the critical
 * path, above unpruned BP's 2.3e8; by values 6e7 and below it. */
static void test_vgg11(void **state) {
  (void)state;
  json_t *guaranteed = run_json("flops vgg11 --prune 0.97 --method class-uniform --seed 0 --up-levels 2 --json");
  json_t *value = run_json("flops vgg11 --prune 0.97 --method class-uniform --seed 0 --up-levels 2 --pattern value --json");
  check_sums(guaranteed);
  check_sums(value);
  const json_t *g = part(guaranteed, "totals"), *v = part(value, "totals");
  assert_int_equal(get_integer(g, "mm"), 14);
  assert_int_equal(get_integer(v, "mv"), 20);
  assert_true(get_integer(g, "mm_flops") > 360000000 && get_integer(g, "mm_flops") < 440000000);
  assert_true(get_integer(g, "critical_flops") > 480000000 && get_integer(g, "critical_flops") < 580000000);
  assert_true(get_integer(v, "mm_flops") > 30000000 && get_integer(v, "mm_flops") < 120000000);
  assert_true(get_integer(v, "critical_flops") > 25000000 && get_integer(v, "critical_flops") < 120000000);
  assert_int_equal(get_integer(guaranteed, "unpruned_baseline_flops") / 1000000, 225); /* without the input's gradient */
  assert_non_null(strstr(get_text(guaranteed, "dominant"), "[pool3·conv5]·[relu5·conv6]"));
  assert_non_null(strstr(get_text(guaranteed, "conclusion"), "BP over these patterns is no longer"));
  assert_non_null(strstr(get_text(value, "conclusion"), "BP over these patterns is no longer"));
  assert_non_null(strstr(get_text(value, "conclusion"), "known after the forward pass only"));
  assert_true(get_real(guaranteed, "critical_flops_of_bp") > 10 && get_real(value, "critical_flops_of_bp") > 10);
  assert_true(get_real(guaranteed, "critical_flops_of_unpruned_bp") > 1 && get_real(value, "critical_flops_of_unpruned_bp") < 1);
  assert_true(get_real(guaranteed, "largest_step_of_unpruned_bp") > 1 && get_real(value, "largest_step_of_unpruned_bp") < 1);
  assert_int_equal(get_integer(part(guaranteed, "automatic"), "up_levels"), 0);
  assert_string_equal(get_text(part(guaranteed, "automatic"), "algorithm"), "linear");
  json_decref(guaranteed);
  json_decref(value);
}

/* One kind of patterns a page: what auto would take is counted by the samples' patterns too. */
static void test_automatic(void **state) {
  (void)state;
  json_t *page = run_json("flops lenet5 --prune 0.9 --pattern value --up-levels 2 --json");
  const int64_t levels = get_integer(part(page, "automatic"), "up_levels");
  json_t *same = run_json("flops lenet5 --prune 0.9 --pattern value --up-levels %d --json", (int)levels);
  assert_int_equal(get_integer(part(page, "automatic"), "critical_flops"), get_integer(part(same, "totals"), "critical_flops"));
  assert_int_equal(get_integer(part(same, "automatic"), "critical_flops"), get_integer(part(same, "totals"), "critical_flops"));
  json_t *guaranteed = run_json("flops lenet5 --prune 0.9 --up-levels 2 --json");
  assert_true(get_integer(part(page, "automatic"), "critical_flops") <
              get_integer(part(guaranteed, "automatic"), "critical_flops"));
  assert_true(fabs(get_real(page, "pruned_fraction") - 0.9) < 1e-4);
  json_decref(guaranteed);
  json_decref(same);
  json_decref(page);
}

/* 0 up-levels are BP's recurrence: the same work, whatever is counted. */
static void check_linear(const char *line, bool thinned) {
  json_t *document = run_json("flops %s --up-levels 0 --json", line);
  const json_t *operators = part(document, "operators"), *totals = part(document, "totals");
  const bool input = strstr(line, "--input-grad") != NULL;
  check_sums(document);
  assert_true(get_real(document, "flops_of_bp") == 1);
  assert_true(get_real(document, "backward_flops_of_bp") == 1);
  assert_true(get_real(document, "critical_flops_of_bp") == 1);
  assert_true(get_real(document, "largest_step_of_bp") == 1);
  assert_int_equal(get_integer(document, "baseline_flops"), get_integer(totals, "mv_flops"));
  assert_true((get_integer(json_array_get(operators, 0), "baseline_flops") > 0) == input);
  assert_true((get_real(document, "flops_of_unpruned_bp") < 1) == thinned);
  assert_true((get_real(document, "backward_flops_of_unpruned_bp") < 1) == thinned);
  assert_true(get_integer(document, "weight_flops") > 0);
  assert_non_null(strstr(get_text(document, "conclusion"), "no scan: this is BP's recurrence, 1.00 times the FLOPs of BP"));
  assert_null(strstr(get_text(document, "conclusion"), "figure 10"));
  json_decref(document);
}

static void test_linear_is_bp(void **state) {
  (void)state;
  static const char *const inputs[] = {"", " --input-grad"};
  static const struct {
    const char *line;
    bool thinned;
  } cases[] = {{"lenet5", false},
               {"vgg11", false},
               {"all.json", false},
               {"net.json", false},
               {"later.json", false},
               {"later.json --prune 0.5", true},
               {"later.json --pattern value --input x.npy", true},
               {"lenet5 --prune 0.9", true},
               {"all.json --prune 0.5", true},
               {"vgg11 --prune 0.97", true},
               {"lenet5 --pattern value", true},
               {"vgg11 --prune 0.97 --pattern value", true},
               {"all.json --prune 0.5 --pattern value --input x.npy", true}};
  put_text("all.json", ALL_OPERATORS);
  put_text("later.json", LATER_OPERATORS);
  put_text("net.json", SMALL_NETWORK);
  put_images("x.npy", "y.npy", (int64_t[]){3, 4, 12, 12}, 3); /* three samples: means are rounded alike on both sides */
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    for (size_t k = 0; k < 2 && (at_full_length() || strncmp(cases[i].line, "vgg11", 5) != 0); ++k) {
      char line[128];
      snprintf(line, sizeof line, "%s%s", cases[i].line, inputs[k]);
      check_linear(line, cases[i].thinned);
    }
  }
}

/* The scans of cells: the plan that is linear has BP's FLOPs, and the others count the same BP. */
static void test_cells(void **state) {
  (void)state;
  static const char *const variants[] = {"", " --input-grad", " --loss all --layers 2", " --layers 3 --input-grad"};
  for (size_t v = 0; v < sizeof variants / sizeof variants[0]; ++v) {
    for (int cell = 0; cell < 2; ++cell) {
      const char *name = cell == 0 ? "rnn" : "gru";
      json_t *linear = run_json("plan %s --seq-len 37 --hidden 6 --algorithm linear --json%s", name, variants[v]);
      json_t *chunked = run_json("plan %s --seq-len 37 --hidden 6 --algorithm chunked --json%s", name, variants[v]);
      const json_t *layers = part(linear, "layer_plans"), *others = part(chunked, "layer_plans");
      for (size_t i = 0; i < json_array_size(layers); ++i) {
        const json_t *layer = json_array_get(layers, i), *other = json_array_get(others, i);
        assert_true(get_real(layer, "flops_of_bp") == 1 && get_real(layer, "backward_flops_of_bp") == 1);
        assert_true(get_real(layer, "critical_flops_of_bp") == 1);
        assert_int_equal(get_integer(part(layer, "totals"), "mv_flops"), get_integer(part(other, "totals"), "bp_flops"));
        assert_true(get_real(other, "flops_of_bp") > get_real(other, "backward_flops_of_bp"));
        assert_true(get_real(other, "backward_flops_of_bp") > 1);
      }
      json_decref(linear);
      json_decref(chunked);
    }
  }
}

static const json_t *row_of(const json_t *document, const char *method, const char *phase) {
  const json_t *rows = part(document, "rows");
  for (size_t i = 0; i < json_array_size(rows); ++i) {
    const json_t *row = json_array_get(rows, i);
    if (strcmp(get_text(row, "method"), method) == 0 && strcmp(get_text(row, "phase"), phase) == 0) {
      return row;
    }
  }
  fail_msg("no row %s of %s", phase, method);
  return NULL;
}

static void assert_same_ratios(const json_t *a, const json_t *b) {
  static const char *const keys[] = {"flops_of_bp", "backward_flops_of_bp", "critical_flops_of_bp"};
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; ++i) {
    assert_true(get_real(a, keys[i]) == get_real(b, keys[i]));
  }
}

/* All commands that print a ratio of the same scan print the same number. */
static void test_agreement(void **state) {
  (void)state;
  json_t *flops = run_json("flops lenet5 --up-levels 2 --json"), *plan = run_json("plan lenet5 --up-levels 2 --json");
  json_t *scan = run_json("bench scan --quick --repeats 1 --threads 1 --json");
  json_t *network = run_json("bench lenet5 --batch 1 --repeats 1 --threads 1 --json");
  assert_true(get_real(flops, "flops_of_bp") > 50);
  assert_same_ratios(flops, plan);
  assert_same_ratios(flops, row_of(scan, "blelloch 2", "scan"));
  assert_string_equal(get_text(row_of(scan, "blelloch 2", "scan"), "algorithm"), "blelloch");
  assert_string_equal(get_text(row_of(scan, "linear", "scan"), "algorithm"), "linear");
  assert_same_ratios(flops, row_of(network, "blelloch 2", "backward"));
  assert_true(get_real(row_of(scan, "linear", "scan"), "flops_of_bp") == 1);
  assert_true(get_real(row_of(network, "linear", "backward"), "flops_of_bp") == 1);
  json_decref(flops);
  json_decref(plan);
  json_decref(scan);
  json_decref(network);
  static const char *const methods[] = {"linear", "blelloch", "chunked"};
  json_t *cells = run_json("bench gru --seq-len 60 --batch 2 --hidden 4 --repeats 1 --threads 1 --json");
  for (size_t i = 0; i < 3; ++i) {
    json_t *one = run_json("plan gru --seq-len 60 --batch 2 --hidden 4 --algorithm %s --json", methods[i]);
    const json_t *row = row_of(cells, methods[i], "backward");
    assert_same_ratios(one, row);
    assert_true(
        fabs(get_real(row, "flops") / get_real(row_of(cells, "bp", "backward"), "flops") / get_real(row, "backward_flops_of_bp") -
             1) < 1e-12);
    json_decref(one);
  }
  json_decref(cells);
}

/* One image of values: an operator's entries are what its values are not 0 in; a batch gives the mean. */
static void test_values(void **state) {
  (void)state;
  put_text("net.json", SMALL_NETWORK);
  put_weights("w.safetensors", "net.json", BPPSA_F64, 2);
  put_images("x.npy", "y.npy", (int64_t[]){4, 2, 6, 5}, 3);
  json_t *guaranteed = run_json("flops net.json --weights w.safetensors --up-levels 2 --json");
  json_t *value = run_json("flops net.json --weights w.safetensors --pattern value --input x.npy --labels y.npy --up-levels 2 "
                           "--input-grad --json");
  check_sums(guaranteed);
  check_sums(value);
  assert_int_equal(get_integer(value, "samples"), 4);
  const json_t *a = part(guaranteed, "operators"), *b = part(value, "operators");
  assert_int_equal(json_array_size(a), 6);
  for (size_t i = 0; i < 6; ++i) {
    const int64_t all = get_integer(json_array_get(a, i), "nnz"), some = get_integer(json_array_get(b, i), "nnz");
    const bool dynamic = i == 1 || i == 2; /* the ReLU, the pool */
    assert_true(dynamic ? some < all : some == all);
  }
  /* every window of the pool that sees a largest value keeps one entry: 4 x 5 x 4 of them */
  assert_int_equal(get_integer(json_array_get(b, 2), "nnz"), 80);
  json_decref(guaranteed);
  json_decref(value);
  assert_runs("flops net.json --prune 0.5 --method class-blind");
  assert_runs("flops lenet5 --prune 1");
}

/* Weights that are 0 in the file are left out, as pruned ones are. */
static void test_zero_weights(void **state) {
  (void)state;
  put_weights("w.safetensors", "lenet5", BPPSA_F32, 0);
  assert_runs("data cifar10 --synthetic --samples 20 --out set");
  assert_runs("prune --weights w.safetensors --fraction 0.9 --out m.safetensors");
  assert_runs("train lenet5 --data cifar10:set --batch 10 --iterations 1 --lr 1e-30 --backward bp --weights w.safetensors "
              "--mask m.safetensors --save-weights p.safetensors");
  json_t *pruned = run_json("flops lenet5 --prune 0.9 --seed 0 --up-levels 3 --json");
  json_t *saved = run_json("flops lenet5 --weights p.safetensors --up-levels 3 --json");
  assert_true(json_equal(part(pruned, "totals"), part(saved, "totals")));
  assert_true(json_equal(part(pruned, "operators"), part(saved, "operators")));
  json_decref(pruned);
  json_decref(saved);
}

/* A mask counts like the weights it leaves, alone and beside --weights. */
static void test_masks(void **state) {
  (void)state;
  put_weights("w.safetensors", "lenet5", BPPSA_F32, 0);
  assert_runs("prune --weights w.safetensors --fraction 0.9 --method class-uniform --out m.safetensors");
  json_t *pruned = run_json("flops lenet5 --prune 0.9 --seed 0 --up-levels 3 --json");
  static const char *const lines[] = {"flops lenet5 --mask m.safetensors --up-levels 3 --json",
                                      "flops lenet5 --mask m.safetensors --weights w.safetensors --up-levels 3 --json",
                                      "plan lenet5 --mask m.safetensors --batch 1 --up-levels 3 --json"};
  for (size_t i = 0; i < sizeof lines / sizeof lines[0]; ++i) {
    json_t *masked = run_json("%s", lines[i]);
    assert_true(json_equal(part(pruned, "totals"), part(masked, "totals")));
    assert_true(json_equal(part(pruned, "steps"), part(masked, "steps")));
    assert_string_equal(get_text(masked, "mask"), "m.safetensors");
    json_decref(masked);
  }
  assert_true(json_is_null(part(pruned, "mask")));
  json_decref(pruned);
  json_t *value = run_json("flops lenet5 --mask m.safetensors --pattern value --up-levels 1 --json");
  check_sums(value);
  json_decref(value);
  run_result text = run("flops lenet5 --mask m.safetensors");
  assert_int_equal(text.code, 0);
  assert_non_null(strstr(text.out, "weights: random, mask: m.safetensors, 90 % pruned, a chain of 9, no scan;"));
  release(&text);
  assert_fails(2, "--mask: given beside --prune", "flops lenet5 --mask m.safetensors --prune 0.5");
  assert_fails(2, "--mask: given beside --prune", "plan lenet5 --mask m.safetensors --prune 0.5");
  assert_fails(2, "absent.safetensors", "flops lenet5 --mask absent.safetensors");
  assert_fails(2, "m.safetensors: mask 'conv1.weight': no weight of the network", "plan vgg11 --mask m.safetensors");
  put_text("net.json", SMALL_NETWORK);
  put_weights("n.safetensors", "net.json", BPPSA_F32, 0);
  assert_runs("prune --weights n.safetensors --fraction 0.5 --out nm.safetensors");
  assert_runs("flops net.json --mask nm.safetensors --up-levels 2");
  put_text("other.json", "{\"input\": [2, 6, 5], \"layers\": [{\"name\": \"l\", \"op\": \"linear\", \"out\": 3}]}");
  assert_fails(2, "mask '", "flops other.json --mask nm.safetensors");
}

static void assert_drawn(const char *path, const char *words) {
  size_t size;
  char *text = read_bytes(path, &size);
  text[size] = '\0';
  if (strstr(text, words) == NULL) {
    fail_msg("%s: expected '%s'", path, words);
  }
  free(text);
}

/* Drawings carry the operators' names, and the FLOPs that were counted; what is a chain is called one. */
static void test_drawings(void **state) {
  (void)state;
  put_text("net.json", SMALL_NETWORK);
  assert_runs("flops lenet5 --up-levels 2 --svg f.svg");
  assert_runs("plan lenet5 --up-levels 2 --svg p.svg");
  assert_drawn("p.svg", "Blelloch scan of 11 elements");
  assert_drawn("p.svg", ">conv2</text>");
  assert_drawn("p.svg", "a[7] = Jᵀ of conv2");
  assert_drawn("p.svg", "a[4:5] ⋄ a[6:7] = a[4:7]: [conv2·relu2]·[pool2·fc1], 57600000 FLOP, critical");
  assert_drawn("f.svg", "[conv2·relu2]·[pool2·fc1]: 57.6 MFLOP"); /* a step of the scan, beside BP's */
  assert_drawn("f.svg", ">conv2</text>");
  assert_drawn("f.svg", "pool2: ");
  json_t *value = run_json("flops net.json --pattern value --up-levels 1 --svg v.svg --json");
  assert_drawn("v.svg", "FLOPs of each step of the scan, in order");
  json_decref(value);
  assert_runs("plan lenet5 --up-levels 0 --svg c.svg");
  assert_drawn("c.svg", "A chain of 9, no scan: 11 elements, 9 mat-vec");
  assert_drawn("c.svg", "L0  chain");
  assert_runs("plan rnn --seq-len 10 --algorithm linear --svg r.svg");
  assert_drawn("r.svg", "A chain of 9, no scan");
  static const struct {
    const char *line, *words;
  } heads[] = {
      {"plan rnn --seq-len 10 --algorithm linear", "Layer 0: a chain of 9, no scan, 11 elements"},
      {"plan gru --seq-len 10 --algorithm chunked --chunks 1", "Layer 0: a chain of 9, no scan, 11 elements"},
      {"plan gru --seq-len 10 --algorithm blelloch", "Layer 0: scan, blelloch (3 up-levels), 11 elements"},
      {"plan lenet5 --up-levels 0", "lenet5: a chain of 9, no scan, 11 elements"},
      {"plan lenet5", "lenet5: a chain of 9, no scan, chosen by estimate, 11 elements"},
      {"flops net.json --up-levels 0", "net.json, guaranteed patterns, weights: all, 0 % pruned, a chain of 4, no scan;"}};
  for (size_t i = 0; i < sizeof heads / sizeof heads[0]; ++i) {
    run_result text = run("%s", heads[i].line);
    assert_int_equal(text.code, 0);
    if (strstr(text.out, heads[i].words) == NULL) {
      fail_msg("%s: expected '%s' in\n%s", heads[i].line, heads[i].words, text.out);
    }
    release(&text);
  }
  assert_fails(2, "--svg", "flops lenet5 --svg absent/f.svg");
  assert_fails(2, "expected two different files", "flops lenet5 --svg f.svg --weights f.svg");
  assert_fails(2, "expected two different files", "flops lenet5 --svg f.svg --mask f.svg");
  assert_fails(2, "expected two different files", "flops lenet5 --svg f.svg --pattern value --input f.svg");
}

/* A network's plan is what its FLOPs are counted by. */
static void test_plan(void **state) {
  (void)state;
  put_text("net.json", SMALL_NETWORK);
  static const char *const networks[] = {"lenet5", "vgg11", "net.json"};
  for (size_t i = 0; i < sizeof networks / sizeof networks[0]; ++i) {
    json_t *flops = run_json("flops %s --up-levels 2 --batch 4 --input-grad --json", networks[i]);
    json_t *plan = run_json("plan %s --up-levels 2 --batch 4 --input-grad --json --svg p.svg", networks[i]);
    assert_true(json_equal(part(flops, "totals"), part(plan, "totals")));
    assert_true(json_equal(part(flops, "steps"), part(plan, "steps")));
    assert_true(json_equal(part(flops, "levels"), part(plan, "levels")));
    assert_int_equal(get_integer(plan, "elements"), get_integer(flops, "elements"));
    assert_int_equal(get_integer(plan, "batch"), 4);
    assert_true(file_exists("p.svg"));
    json_decref(flops);
    json_decref(plan);
  }
  json_t *plan = run_json("plan lenet5 --prune 0.9 --json");
  assert_true(json_is_true(part(plan, "pruned")));
  assert_string_equal(get_text(plan, "backward"), "scan");
  json_decref(plan);
  run_result table = run("plan lenet5 --up-levels 2");
  assert_int_equal(table.code, 0);
  assert_non_null(strstr(table.out, "lenet5: scan, blelloch (2 up-levels), 11 elements, all weights, B 256, f32"));
  assert_non_null(strstr(table.out, "[conv2·relu2]·[pool2·fc1]  critical"));
  release(&table);
  assert_fails(2, "memory limit", "plan vgg11 --up-levels 2 --memory-limit 1G");
  assert_fails(2, "--up-levels: 'x'", "plan vgg11 --up-levels x");
  assert_fails(2, "absent.safetensors", "plan net.json --weights absent.safetensors");
  assert_fails(2, "--svg", "plan lenet5 --svg absent/p.svg");
}

/* What is too large is refused before it is made, with the bytes and the layer. */
static void test_too_large(void **state) {
  (void)state;
  put_text("big.json", "{\"input\": [1, 46000, 46000], \"layers\": [{\"name\": \"p\", \"op\": \"maxpool2d\", \"kernel\": 2}, "
                       "{\"name\": \"fc\", \"op\": \"linear\", \"out\": 10}]}");
  static const char *const verbs[] = {"flops", "plan"};
  for (size_t i = 0; i < 2; ++i) {
    assert_fails(
        2,
        "big.json: counting the rows of the Jacobians needs 279312000168 bytes, 279312000000 of them for sets of the values "
        "in front of layer 'p', the memory limit is 1073741824",
        "%s big.json --memory-limit 1G", verbs[i]);
    assert_fails(2, "for layer 'conv1', the memory limit is 10240", "%s vgg11 --memory-limit 10K", verbs[i]);
  }
}

static void test_bad_requests(void **state) {
  (void)state;
  put_text("net.json", SMALL_NETWORK);
  put_images("x.npy", "y.npy", (int64_t[]){4, 2, 6, 5}, 3);
  assert_fails(2, "--prune: '2'", "flops vgg11 --prune 2");
  assert_fails(2, "--method: 'best'", "flops vgg11 --method best");
  assert_fails(2, "expected --pattern value", "flops net.json --input x.npy");
  assert_fails(2, "x.npy: shape [4, 2, 6, 5], expected [B, C, H, W] = [4, 3, 32, 32]",
               "flops lenet5 --pattern value --input x.npy");
  put_images("x2.npy", "y2.npy", (int64_t[]){3, 2, 6, 5}, 3);
  assert_fails(2, "y2.npy: shape [3], expected [B] = [4]", "flops net.json --pattern value --input x.npy --labels y2.npy");
  assert_fails(2, "absent.safetensors", "flops net.json --weights absent.safetensors");
  assert_fails(2, "no.json", "flops no.json");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_vgg11),        cmocka_unit_test(test_graph),        cmocka_unit_test(test_automatic),
      cmocka_unit_test(test_values),       cmocka_unit_test(test_zero_weights), cmocka_unit_test(test_plan),
      cmocka_unit_test(test_linear_is_bp), cmocka_unit_test(test_cells),        cmocka_unit_test(test_agreement),
      cmocka_unit_test(test_masks),        cmocka_unit_test(test_too_large),    cmocka_unit_test(test_drawings),
      cmocka_unit_test(test_bad_requests)};
  return cmocka_run_group_tests(tests, enter_directory, leave_directory);
}
