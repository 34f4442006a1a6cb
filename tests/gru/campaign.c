/* Random configurations of the GRU (tests/support/cell_campaign.h). */
#include "tests/support/gru_reference.h"

static const cell_reference cell = GRU_REFERENCE;

#include "tests/support/cell_campaign.h"

int main(int argc, char **argv) {
  return campaign("gru", argc, argv);
}
