/* Random configurations of RNN, GRU and LSTM whose samples have lengths of their own, whose layers have two directions, or none of
 * the biases. campaign (tests/support/cell_campaign.h) checks them; its result is the exit status. */
#include "tests/support/cell_references.h"

static cell_reference cell;
#include "tests/support/cell_on_threads.h"

int main(int argc, char **argv) {
  const campaign_kind kind = {on_threads.key, on_threads.most, true, false, on_threads.worst};
  if (argc < 2 || !find_cell(argv[1], &cell)) {
    fprintf(stderr, "campaign_sequences: expected rnn|gru|lstm SEED COUNT [MOVES]\n");
    return 2;
  }
  return campaign(&kind, argc - 1, argv + 1);
}
