/* Random configurations of the LSTM. campaign (tests/support/cell_campaign.h) checks them; its result is the exit status. */
#include "tests/support/lstm_reference.h"

static const cell_reference cell = LSTM_REFERENCE;

#include "tests/support/cell_on_threads.h"

int main(int argc, char **argv) {
  return campaign(&on_threads, argc, argv);
}
