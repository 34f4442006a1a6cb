/* The tables of a calibration, from given numbers: behind each measured time stands how far it spreads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "calibrate/calibrate.h"

static const char document[] =
    "{\"name\": \"m\", \"peak_flops\": 2e9, \"efficiency\": 0.25, \"memory_bytes\": 1e9, \"spread\": {\"layers\": [0.75, 1.5]},"
    " \"levels\": [{\"processors\": 2, \"spread\": {\"messages\": [0.5, 3]}}],"
    " \"layer_times\": {\"model\": \"small\", \"batch\": 4,"
    "  \"shares\": [{\"strategy\": \"data\", \"ways\": 1, \"ranks\": 2, \"forward_s\": 4e-6, \"backward_s\": 2e-6, \"update_s\": "
    "1e-6,"
    "   \"exchange_s\": 8e-6, \"spread\": {\"forward_s\": [3e-6, 6e-6], \"exchange_s\": [8e-6, 9e-6]}}],"
    "  \"layers\": [{\"name\": \"fc\", \"forward_s\": 1e-6, \"backward_s\": 2e-6, \"input_grad_s\": 0, \"weight_grad_s\": 1e-6,"
    "   \"update_s\": 5e-7, \"scan_s\": 1e-6, \"product_s\": 2e-6,"
    "   \"spread\": {\"forward_s\": [9e-7, 1.25e-6], \"backward_s\": [2e-6, 2e-6], \"product_s\": [0, 4e-6]}}]},"
    " \"product_fits\": [{\"product\": \"apply\", \"sample_s\": 1e-6, \"entry_s\": 1e-9, \"term_s\": 0, \"residual\": 0.01,"
    "   \"spread\": [0.95, 1.2]}],"
    " \"fits\": [{\"operation\": \"allreduce\", \"ranks\": 2, \"alpha_s\": 1e-5, \"bandwidth\": 1e9, \"residual\": 0.125,"
    "   \"spread\": [0.5, 2]}, {\"operation\": \"allgather\", \"ranks\": 2, \"alpha_s\": 1e-5, \"bandwidth\": 1e9, \"residual\": "
    "0}],"
    " \"measured\": {\"date\": \"today\", \"transport\": \"threads\", \"ranks\": 2, \"threads_of_rank\": 1, \"warnings\": [],"
    "  \"slowdowns\": [{\"ranks\": 2, \"median\": 1.5, \"low\": 1.25, \"high\": 1.75, \"rounds\": 9, \"confidence\": 0.96}]}}";

static const char *const lines[] = {
    ("fc                         1.000   -10+25%       2.000     -0+0%       0.000                 1.000                 0.500"
     "          \n"),
    "fc: a scan takes 1.000 us a sample longer than BP, a product of two steps' Jacobians takes 2.000 us a sample -100+100%\n",
    "data                 1      2       4.000   -25+50%       2.000                 1.000                 8.000    -0+12%\n",
    "apply                  1.000        1.000       0.0000     1.0 %  0.95..1.20\n",
    "allreduce            2       10.000         1 GB/s    12.5 %  0.50..2.00\n",
    "allgather            2       10.000         1 GB/s     0.0 %  \n",
    "2 ranks at once compute 1.50 times as long, 1.25 to 1.75 (9 rounds, 96 % sure)\n",
    "passes through all layers take 0.75 to 1.50 times their medians\n",
    "messages among 2 ranks take 0.50 to 3.00 times their medians\n"};

static void test_tables(void **state) {
  (void)state;
  json_t *given = NULL;
  bppsa_text text = {0};
  assert_int_equal(bppsa_json_parse("given", document, (int64_t)strlen(document), &given), BPPSA_OK);
  assert_int_equal(bppsa_calibrate_text(given, &text), BPPSA_OK);
  for (size_t i = 0; i < sizeof lines / sizeof lines[0]; ++i) {
    if (strstr(text.text, lines[i]) == NULL) {
      fail_msg("%s\nlacks\n%s", text.text, lines[i]);
    }
  }
  bppsa_text_free(&text);
  json_decref(given);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_tables)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
