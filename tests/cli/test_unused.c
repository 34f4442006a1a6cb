/* What a command does not take as it was asked for: numbers that are larger than there is room for are noted, and options that
 * would have no effect beside others are refused. Nothing is passed over in silence. */
#include "tests/cli/run_cli.h"

#define SMALL "rnn --seq-len 12 --samples 16 --hidden 2 --threads 1"
#define CUT "train " SMALL " --iterations 1 --ranks 3 --split time"
#define EVAL "eval rnn --seq-len 12 --samples 16 --threads 1 --weights W.safetensors"
#define BENCH "--seq-len 12 --batch 2 --hidden 2 --repeats 1 --quick --threads 1 --init default"
#define ORACLE "oracle resnet50 paradl-v100 --processors 4 --strategy "
#define LARGER(option, asked, used) option ": " #asked " asked for, " #used " used, as there are no more\n"
#define SEQUENTIAL "--forward: speculative asked for, the pass is sequential"

static void test_notes(void **state) {
  (void)state;
  static const struct {
    const char *line, *note; /* NULL: nothing to say */
  } cases[] = {{CUT " --chunks 5000", LARGER("--chunks", 5000, 3)},
               {CUT " --chunks 2", "--chunks: 2 asked for, 3 used, as many as the ranks make\n"},
               {CUT " --chunks 3", NULL},
               {CUT " --algorithm chunked", NULL},
               {CUT " --up-levels 40", LARGER("--up-levels", 40, 1)},
               {CUT " --up-levels 0", "--up-levels: 0 asked for, 1 used, as many as the ranks make\n"},
               {"plan rnn --ranks 2 --split time --chunks 99", LARGER("--chunks", 99, 2)},
               {"plan rnn --ranks 2 --split time --up-levels 0", "--up-levels: 0 asked for, 1 used, as many as the ranks make\n"},
               {"plan rnn --ranks 2 --split batch --chunks 99", NULL},
               {EVAL " --batch 500", LARGER("--batch", 500, 16)},
               {EVAL " --ranks 2 --batch 500", LARGER("--batch", 500, 16)},
               {EVAL " --batch 16", NULL},
               {EVAL, NULL},
               {"bench rnn " BENCH " --chunks 5000", LARGER("--chunks", 5000, 12)},
               {"bench rnn " BENCH " --up-levels 40", LARGER("--up-levels", 40, 3)},
               {"bench rnn " BENCH " --forward-chunks 40", LARGER("--forward-chunks", 40, 12)},
               {"bench rnn " BENCH " --chunks 12 --warm-up 12", NULL},
               {"bench step " BENCH " --warm-up 40", LARGER("--warm-up", 40, 12)},
               {"bench forward --seq-len 12 --batch 2 --hidden 2 --repeats 1 --quick --threads 1 --warm-up 40",
                LARGER("--warm-up", 40, 12)},
               {"bench crossover --quick --workers 3 --seq-len 12 --batch 2 --repeats 1 --threads 1 --chunks 500",
                LARGER("--chunks", 500, 12)},
               {"bench ranks --ranks 2 --split batch --quick --repeats 1 --threads 1 --batch 4 --seq-len 4 --hidden 2 --input 2 "
                "--forward-chunks 50",
                LARGER("--forward-chunks", 50, 4)},
               {"train " SMALL " --iterations 1 --tolerance 0.1", SEQUENTIAL},
               {"train " SMALL " --iterations 1 --forward auto --tolerance 0.1",
                "--forward: auto takes a sequential pass, which has no chunks"},
               {"train " SMALL " --iterations 1 --forward auto", NULL}};
  assert_runs("train " SMALL " --iterations 1 --save-weights W.safetensors");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    if (cases[i].note == NULL) {
      assert_runs("%s", cases[i].line);
    } else {
      assert_noted(cases[i].note, "%s", cases[i].line);
    }
  }
  json_t *cut = run_noted_json(CUT " --chunks 5000 --json"); /* what is shown is what ran */
  assert_int_equal(get_integer(json_object_get(cut, "config"), "chunks"), 3);
  json_decref(cut);
  cut = run_noted_json("plan rnn --ranks 2 --split time --chunks 99 --json");
  assert_int_equal(get_integer(cut, "chunks"), 2);
  json_decref(cut);
}

static void test_refusals(void **state) {
  (void)state;
  static const struct {
    const char *line, *says;
  } cases[] = {
      {CUT " --reduction library", "--reduction: library beside ranks that share time alone"},
      {"bench ranks --ranks 2 --split batch --micro-batches 4 --quick", "--micro-batches: given beside --split batch"},
      {"bench oracle --ranks 2 --compare data --micro-batches 2 --batch 8 --quick",
       "--micro-batches: given for data, expected a strategy that takes it: pipeline, "},
      {ORACLE "data --micro-batches 4", "--micro-batches: given for data, expected a strategy that takes it: pipeline, "},
      {ORACLE "data,pipeline --chunks 4", "--chunks: given for data,pipeline, expected a strategy that takes it: interleaved"},
      {ORACLE "filter --group 2", "--group: given for filter, expected a strategy that takes it: data+filter, data+spatial"},
      {ORACLE "x --group 2", "'x': unknown strategy"},
      {"oracle --list --batch 3", "oracle: --batch given beside --list, expected --json alone"},
      {"schedule --list --stages 4", "schedule: --stages given beside --list, expected --json alone"},
      {"schedule --list gpipe", "schedule: --scheme given beside --list"},
      {"schedule --compare gpipe,1f1b --svg x.svg", "--svg: given beside --compare"},
      {"schedule --compare gpipe,1f1b --trace x.json", "--trace: given beside --compare"},
      {"schedule --compare gpipe,1f1b --csv x.csv", "--csv: given beside --compare"},
      {"schedule --compare gpipe,1f1b --load x.csv", "--load: given beside --compare"},
      {"schedule gpipe --compare gpipe,1f1b", "--scheme: given beside --compare"},
      {"flops lenet5 --method class-blind", "--method: given without --prune, which it is of, expected --prune F too"},
      {"plan lenet5 --method class-blind", "--method: given without --prune"},
      {"bench lenet5 --method class-blind --quick", "--method: given without --prune"},
      {"figures --out fg --cnn --model gru", "--model: given beside --cnn, whose figures are of images"},
      {"figures --out fg --cnn --results r.json", "--results: given beside --cnn"},
      {"figures --out fg --cnn --set M", "--set: given beside --cnn"},
      {"figures --out fg --cnn --batch 3", "--batch: given beside --cnn"},
      {"figures --out fg --cnn --iterations 3", "--iterations: given beside --cnn"},
      {"figures --out fg --results r.json --repeats 3", "--repeats: given beside --results, which are measured already"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    assert_fails(2, cases[i].says, "%s", cases[i].line);
  }
  assert_runs(ORACLE "data,interleaved --chunks 4 --micro-batches 4");
  assert_runs(ORACLE "data+filter --group 2");
  assert_runs("oracle resnet50 paradl-v100 --processors 4 --chunks 4 --micro-batches 4 --group 2");
  assert_runs("schedule --list --json");
  assert_runs("schedule --compare gpipe,1f1b --json");
  assert_runs("flops lenet5 --prune 0 --method class-blind");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_notes), cmocka_unit_test(test_refusals)};
  return cmocka_run_group_tests(tests, enter_directory, leave_directory);
}
