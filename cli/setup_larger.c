/* Notes where the program uses another number than was asked for, and refuses options that would have no effect. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "cli/setup.h"
#include "terminal/output.h"

void bppsa_setup_note_larger(const bppsa_cli *cli, bppsa_option option, int64_t asked, int64_t used) {
  if (asked > used) {
    bppsa_output_note(&cli->to, "%s: %" PRId64 " asked for, %" PRId64 " used, as there are no more",
                      bppsa_option_get(option)->name, asked, used);
  }
}

void bppsa_setup_note_option(const bppsa_cli *cli, bppsa_option option, int64_t used) {
  const bppsa_option_value *value = bppsa_cli_value(cli, option);
  const int64_t asked = value->given ? value->integer : used;
  bppsa_setup_note_larger(cli, option, asked, used);
  if (asked < used) {
    bppsa_output_note(&cli->to, "%s: %" PRId64 " asked for, %" PRId64 " used, as many as the ranks make",
                      bppsa_option_get(option)->name, asked, used);
  }
}

void bppsa_setup_note_scan(const bppsa_cli *cli, const bppsa_gradient_method *method) {
  if (method->backward == BPPSA_BACKWARD_SCAN && method->scan.algorithm == BPPSA_SCAN_BLELLOCH) {
    bppsa_setup_note_option(cli, BPPSA_OPTION_UP_LEVELS, method->scan.up_levels);
  }
  if (method->backward == BPPSA_BACKWARD_SCAN && method->scan.algorithm == BPPSA_SCAN_CHUNKED) {
    bppsa_setup_note_option(cli, BPPSA_OPTION_CHUNKS, method->scan.chunks);
  }
}

void bppsa_setup_note_steps(const bppsa_cli *cli, int64_t steps) {
  static const bppsa_option of_passes[] = {BPPSA_OPTION_FORWARD_CHUNKS, BPPSA_OPTION_WARM_UP, BPPSA_OPTION_BACKWARD_CHUNKS,
                                           BPPSA_OPTION_BACKWARD_WARM_UP};
  const bppsa_scan_method asked[] = {{BPPSA_SCAN_BLELLOCH, bppsa_cli_value(cli, BPPSA_OPTION_UP_LEVELS)->integer, 0},
                                     {BPPSA_SCAN_CHUNKED, 0, bppsa_cli_value(cli, BPPSA_OPTION_CHUNKS)->integer}};
  for (size_t i = 0; i < sizeof asked / sizeof *asked; ++i) {
    const bppsa_gradient_method used = {.backward = BPPSA_BACKWARD_SCAN, .scan = bppsa_scan_method_clamp(&asked[i], steps)};
    bppsa_setup_note_scan(cli, &used);
  }
  for (size_t i = 0; i < sizeof of_passes / sizeof *of_passes; ++i) {
    const bppsa_option_value *value = bppsa_cli_value(cli, of_passes[i]);
    bppsa_setup_note_larger(cli, of_passes[i], value->given ? value->integer : 0, steps);
  }
}

/* Was one of the options given that only a speculative pass has? */
static bool gives_speculative(const bppsa_cli *cli) {
  static const bppsa_option of_chunks[] = {BPPSA_OPTION_FORWARD_CHUNKS, BPPSA_OPTION_WARM_UP, BPPSA_OPTION_TOLERANCE};
  bool found = false;
  for (size_t i = 0; i < sizeof of_chunks / sizeof *of_chunks; ++i) {
    found = found || bppsa_cli_value(cli, of_chunks[i])->given;
  }
  return found;
}

void bppsa_setup_note_forward(const bppsa_cli *cli, const bppsa_forward_plan *plan) {
  const bppsa_option_value *kind = bppsa_cli_value(cli, BPPSA_OPTION_FORWARD);
  const bool automatic = kind->given && strcmp(kind->text, bppsa_forward_name(BPPSA_FORWARD_AUTO)) == 0;
  if (plan == NULL) {
    return;
  }
  if (plan->speculative) {
    bppsa_setup_note_option(cli, BPPSA_OPTION_FORWARD_CHUNKS, plan->chunks);
    bppsa_setup_note_option(cli, BPPSA_OPTION_WARM_UP, plan->warm_up);
  } else if (automatic && gives_speculative(cli)) {
    bppsa_output_note(&cli->to, "--forward: auto takes a sequential pass, which has no chunks, warm-up or tolerance");
  } else if (gives_speculative(cli) || (kind->given && strcmp(kind->text, bppsa_forward_name(BPPSA_FORWARD_SPECULATIVE)) == 0)) {
    bppsa_output_note(&cli->to,
                      "--forward: speculative asked for, the pass is sequential, which is all that the number of steps, or "
                      "--tolerance 0, admits");
  }
}

void bppsa_setup_note_backward(const bppsa_cli *cli, const bppsa_gradient_method *method, const bppsa_backward_plan *plan) {
  if (plan != NULL) {
    bppsa_setup_note_option(cli, BPPSA_OPTION_BACKWARD_CHUNKS, plan->chunks);
    bppsa_setup_note_option(cli, BPPSA_OPTION_BACKWARD_WARM_UP, plan->warm_up);
  } else if (method->backward == BPPSA_BACKWARD_SPECULATIVE) {
    bppsa_output_note(&cli->to, "--backward: speculative asked for, the pass is BP, which is all that the number of steps, or "
                                "--backward-tolerance 0, admits");
  }
}

bppsa_status bppsa_setup_refuse(const bppsa_cli *cli, const bppsa_option_use *list, const char *text, const char *more) {
  for (; list->option != BPPSA_OPTION_COUNT; ++list) {
    if (bppsa_cli_given(cli, list->option) && bppsa_cli_value(cli, list->option)->meaning == bppsa_option_of(list)) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: given %s%s", bppsa_option_get(list->option)->name, text, more);
    }
  }
  return BPPSA_OK;
}

bppsa_status bppsa_setup_alone(const bppsa_cli *cli, bppsa_option alone) {
  for (const bppsa_option_use *use = cli->command->uses; use->option != BPPSA_OPTION_COUNT; ++use) {
    if (use->option != alone && use->option != BPPSA_OPTION_JSON && bppsa_cli_given(cli, use->option)) {
      return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: %s given beside %s, expected --json alone", cli->command->verb,
                        bppsa_option_get(use->option)->name, bppsa_option_get(alone)->name);
    }
  }
  return BPPSA_OK;
}

bppsa_status bppsa_setup_structure(const bppsa_cli *cli, bppsa_option fraction, bppsa_prune_structure *structure, double *share) {
  const bppsa_option_value *text = bppsa_cli_value(cli, BPPSA_OPTION_STRUCTURE), *given = bppsa_cli_value(cli, fraction);
  const bppsa_option_info *option = bppsa_option_get(BPPSA_OPTION_STRUCTURE), *of = bppsa_option_get(fraction);
  bppsa_prune_structure made = {.kind = BPPSA_STRUCTURE_ELEMENT};
  if (text->text != NULL && bppsa_prune_structure_parse(text->text, &made) != BPPSA_OK) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "--structure: '%s', expected %s", text->text, option->expected);
  }
  *structure = made;
  *share = given->real;
  if (made.kind == BPPSA_STRUCTURE_N_OF_M) {
    const double implied = 1 - (double)made.size[0] / (double)made.size[1];
    *share = implied;
    return !given->given || fabs(given->real - implied) < 1e-6
               ? BPPSA_OK
               : bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: %g beside --structure %s, which prunes %g, expected none", of->name,
                            given->real, text->text, implied);
  }
  if (fraction == BPPSA_OPTION_FRACTION && !given->given) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "%s: option missing in '%s', expected %s", of->name, cli->command->verb, of->expected);
  }
  return !text->given || given->given || given->real > 0
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_ARGUMENT, "--structure: given without %s, expected a fraction that is pruned", of->name);
}

bppsa_status bppsa_setup_check_method(const bppsa_cli *cli) {
  const bppsa_option_value *prune = bppsa_cli_value(cli, BPPSA_OPTION_PRUNE);
  return !bppsa_cli_given(cli, BPPSA_OPTION_METHOD) || prune->given || prune->real > 0
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_ARGUMENT, "--method: given without --prune, which it is of, expected --prune F too");
}
