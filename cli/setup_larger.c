/* Notes about numbers that were asked for and are larger than what is used. */
#include <inttypes.h>
#include <string.h>

#include "cli/setup.h"

void bppsa_setup_note_larger(const bppsa_cli *cli, bppsa_option option, int64_t asked, int64_t used) {
  if (asked > used) {
    bppsa_output_note(&cli->to, "%s: %" PRId64 " asked for, %" PRId64 " used, as there are no more",
                      bppsa_option_get(option)->name, asked, used);
  }
}

static void note_option(const bppsa_cli *cli, bppsa_option option, int64_t used) {
  const bppsa_option_value *value = bppsa_cli_value(cli, option);
  bppsa_setup_note_larger(cli, option, value->given ? value->integer : used, used);
}

void bppsa_setup_note_scan(const bppsa_cli *cli, const bppsa_gradient_method *method) {
  if (method->backward == BPPSA_BACKWARD_SCAN && method->scan.algorithm == BPPSA_SCAN_BLELLOCH) {
    note_option(cli, BPPSA_OPTION_UP_LEVELS, method->scan.up_levels);
  }
  if (method->backward == BPPSA_BACKWARD_SCAN && method->scan.algorithm == BPPSA_SCAN_CHUNKED) {
    note_option(cli, BPPSA_OPTION_CHUNKS, method->scan.chunks);
  }
}

void bppsa_setup_note_forward(const bppsa_cli *cli, const bppsa_forward_plan *plan) {
  const bppsa_option_value *kind = bppsa_cli_value(cli, BPPSA_OPTION_FORWARD);
  if (plan == NULL) {
    return;
  }
  if (plan->speculative) {
    note_option(cli, BPPSA_OPTION_FORWARD_CHUNKS, plan->chunks);
    note_option(cli, BPPSA_OPTION_WARM_UP, plan->warm_up);
  } else if ((kind->given && strcmp(kind->text, bppsa_forward_name(BPPSA_FORWARD_SPECULATIVE)) == 0) ||
             bppsa_cli_value(cli, BPPSA_OPTION_FORWARD_CHUNKS)->given || bppsa_cli_value(cli, BPPSA_OPTION_WARM_UP)->given) {
    bppsa_output_note(&cli->to,
                      "--forward: speculative asked for, the pass is sequential, which is all that the number of steps, or "
                      "--tolerance 0, admits");
  }
}
