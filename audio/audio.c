#include "audio/audio.h"

bppsa_status bppsa_audio_check(void) {
  bppsa_audio_report report;
  bppsa_audio_probe(&report);
  return report.found ? BPPSA_OK
                      : bppsa_fail(report.built ? BPPSA_ERR_LIBRARY : BPPSA_ERR_UNSUPPORTED, "audio: %s", report.detail);
}
