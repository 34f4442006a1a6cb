/* A run of training without a command line: its model, the settings a resumed run must share, its weights. */
#include "core/files/safetensors.h"
#include "tests/runs/train_setting.h"
#include "tests/support/rescue_folder.h"

static const char *field(const bppsa_train_run *run, const char *key) {
  for (int64_t i = 0; i < run->train.field_count; ++i) {
    if (strcmp(run->train.fields[i].key, key) == 0) {
      return run->train.fields[i].value;
    }
  }
  return NULL;
}

/* A recurrent network's fields are its sizes; a convolutional one's is a checksum of its layers and masks. */
static void test_fields(void **state) {
  (void)state;
  bppsa_train_run run;
  assert_int_equal(open_run(BPPSA_BACKWARD_SCAN, &run), BPPSA_OK);
  assert_string_equal(field(&run, "nonlinearity"), "tanh");
  assert_string_equal(field(&run, "loss"), "last");
  assert_string_equal(field(&run, "hidden"), "3");
  assert_string_equal(field(&run, "layers"), "1");
  assert_string_equal(field(&run, "init"), "default");
  assert_string_equal(field(&run, "gradients"), run.train.gradients);
  assert_int_equal(strncmp(run.train.gradients, "blelloch", 8), 0);
  assert_null(field(&run, "network"));
  assert_true(run.plan_s > 0);
  bppsa_train_run_free(&run);
  bppsa_train_run_free(&run);

  run = (bppsa_train_run){.init = "default"};
  assert_int_equal(bppsa_network_open("lenet5", NULL, &run.network), BPPSA_OK);
  run.config = bppsa_network_config_default(&run.network);
  run.config.batch = 1;
  run.config.method.backward = BPPSA_BACKWARD_BP;
  assert_int_equal(bppsa_device_create("cpu", 1, &run.device), BPPSA_OK);
  assert_int_equal(bppsa_dataset_create("bitstream", &(bppsa_dataset_options){.samples = 1}, &run.dataset), BPPSA_OK);
  assert_int_equal(bppsa_train_run_create_model(&run), BPPSA_OK);
  bppsa_train_run_set_fields(&run);
  char identity[32];
  assert_string_equal(field(&run, "network"), bppsa_network_identity(&run.network, identity, sizeof identity));
  assert_null(field(&run, "hidden"));
  assert_string_equal(run.train.gradients, "bp");
  bppsa_train_run_free(&run);
}

/* A run from weights names their checksum: other weights, another text. */
static void test_weights(void **state) {
  (void)state;
  bppsa_train_run run;
  bppsa_safetensors *file = NULL;
  char first[BPPSA_TRAIN_FIELD];
  assert_int_equal(open_run(BPPSA_BACKWARD_BP, &run), BPPSA_OK);
  assert_int_equal(bppsa_train_run_save(&run, "run_weights.safetensors"), BPPSA_OK);
  assert_int_equal(bppsa_safetensors_load("run_weights.safetensors", &file), BPPSA_OK);
  assert_string_equal(bppsa_safetensors_metadata(file, "model"), "rnn");
  assert_string_equal(bppsa_safetensors_metadata(file, "nonlinearity"), "tanh");
  assert_string_equal(bppsa_safetensors_metadata(file, "loss"), "last");
  assert_int_equal(bppsa_safetensors_count(file), run.model->parameter_count);
  run.weights = file;
  run.init = "from weights";
  bppsa_train_run_set_fields(&run);
  snprintf(first, sizeof first, "%s", field(&run, "init"));
  assert_int_equal(strncmp(first, "from weights ", 13), 0);
  const double value = bppsa_view_get(&run.model->parameters[0].value, 0);
  bppsa_view_set(&run.model->parameters[0].value, 0, value + 1);
  bppsa_train_run_set_fields(&run);
  assert_string_not_equal(field(&run, "init"), first);
  rescue_to("run_rescued");
  assert_int_equal(bppsa_train_run_save(&run, "no/such/W.safetensors"), BPPSA_ERR_IO);
  assert_non_null(strstr(bppsa_last_error(), rescue_folder));
  assert_int_equal(entries("run_rescued"), 1);
  remove_folder("run_rescued");
  bppsa_train_run_free(&run);
}

/* A resumed run goes on with the method of its checkpoint, unless it was asked for one that contradicts it. */
static void test_resume(void **state) {
  (void)state;
  static const struct {
    bppsa_backward asked;
    bool scan;         /* of the checkpoint */
    bppsa_chosen from; /* before */
    bppsa_chosen expected;
  } cases[] = {{BPPSA_BACKWARD_AUTO, true, BPPSA_CHOSEN_BY_ESTIMATE, BPPSA_CHOSEN_BY_CHECKPOINT},
               {BPPSA_BACKWARD_AUTO, false, BPPSA_CHOSEN_BY_ESTIMATE, BPPSA_CHOSEN_BY_CHECKPOINT},
               {BPPSA_BACKWARD_SCAN, true, BPPSA_CHOSEN_BY_ESTIMATE, BPPSA_CHOSEN_BY_CHECKPOINT},
               {BPPSA_BACKWARD_SCAN, false, BPPSA_CHOSEN_BY_ESTIMATE, BPPSA_CHOSEN_BY_ESTIMATE},
               {BPPSA_BACKWARD_BP, true, BPPSA_CHOSEN_BY_OPTION, BPPSA_CHOSEN_BY_OPTION}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    bppsa_train_run run;
    remove_folder("run_checkpoint");
    assert_int_equal(open_run(cases[i].scan ? BPPSA_BACKWARD_SCAN : BPPSA_BACKWARD_BP, &run), BPPSA_OK);
    run.train.checkpoint = "run_checkpoint";
    assert_int_equal(bppsa_train(&run.train, run.model, run.dataset, run.device, NULL, &run.result), BPPSA_OK);
    run.train.resume = true;
    run.chosen = cases[i].from;
    run.config.method = (bppsa_gradient_method){.backward = cases[i].asked, .scan = bppsa_scan_method_of(BPPSA_SCAN_AUTO)};
    assert_int_equal(bppsa_train_run_resume_method(&run), BPPSA_OK);
    assert_int_equal(run.chosen, cases[i].expected);
    const bppsa_backward now = cases[i].expected != BPPSA_CHOSEN_BY_CHECKPOINT ? cases[i].asked
                               : cases[i].scan                                 ? BPPSA_BACKWARD_SCAN
                                                                               : BPPSA_BACKWARD_BP;
    assert_int_equal(run.config.method.backward, now);
    bppsa_train_run_free(&run);
  }
  bppsa_train_run run = {.train = {.resume = true, .checkpoint = "no_checkpoint"}, .chosen = BPPSA_CHOSEN_BY_ESTIMATE};
  assert_int_not_equal(bppsa_train_run_resume_method(&run), BPPSA_OK);
  assert_int_equal(run.chosen, BPPSA_CHOSEN_BY_ESTIMATE);
}

static bppsa_status open_and_save(void *argument) {
  bppsa_train_run run;
  (void)argument;
  bppsa_status status = open_run(BPPSA_BACKWARD_SCAN, &run);
  status = status == BPPSA_OK ? bppsa_train_run_save(&run, "run_walked.safetensors") : status;
  bppsa_train_run_free(&run);
  return status;
}

static void test_memory(void **state) {
  (void)state;
  assert_true(walk_allocations(open_and_save, NULL) > 10);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_fields), cmocka_unit_test(test_weights), cmocka_unit_test(test_resume),
                                     cmocka_unit_test(test_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
