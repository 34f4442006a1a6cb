/* `bppsa doctor`: what this build and this machine offer, and the package that brings what is missing. */
#include "calibrate/doctor.h"
#include "cli/setup.h"

static const bppsa_option_use uses[] = {BPPSA_USES_END};

static bppsa_status run(bppsa_cli *cli) {
  bppsa_doctor doctor;
  bppsa_doctor_examine(BPPSA_DOCTOR_PATIENCE_S, &doctor);
  bppsa_text shown = {0};
  const bppsa_status status =
      cli->to.json ? bppsa_json_render(bppsa_doctor_json(&doctor), &shown.text) : bppsa_doctor_text(&doctor, &shown);
  return bppsa_setup_finish(cli, status, &shown);
}

const bppsa_command bppsa_command_doctor = {.verb = "doctor",
                                            .summary = "Shows what this build and this machine offer, and what brings the rest",
                                            .example = "doctor",
                                            .uses = uses,
                                            .run = run};
