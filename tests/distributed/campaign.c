/* Random configurations of RNN, GRU and LSTM, cut along time on one to nine ranks that are threads. campaign
 * (tests/support/cell_campaign.h) checks them; its result is the exit status. */
#include "tests/distributed/split_problem.h"
#include "tests/support/cell_campaign.h"
#include "tests/support/cell_references.h"

/* In one to four groups of samples. All ranks must have the same bits of every weight gradient. */
static double worst_on_ranks(problem *p, bppsa_recurrent_config *c, int64_t places, dice *d, char name[64]) {
  split_worst worst[TENSORS + 2];
  split_job j = {.p = p, .method = c->method, .loss = NAN, .repeats = 1, .worst = worst};
  clear_worst(worst);
  j.micro_batches = roll(d, 1, c->batch < 4 ? c->batch : 4);
  const bppsa_comm_config config = {.ranks = places, .timeout = 600};
  if (bppsa_comm_run(&config, split_rank, &j, NULL) != BPPSA_OK) {
    fprintf(stderr, "%lld ranks, %lld groups: %s\n", (long long)places, (long long)j.micro_batches, bppsa_last_error());
    return INFINITY;
  }
  const split_worst *largest = worst;
  for (int64_t i = 1; i < p->count + 2; ++i) {
    largest = worst[i].residual <= largest->residual ? largest : &worst[i];
  }
  snprintf(name, 64, "%s", largest->name);
  return largest->residual;
}

int main(int argc, char **argv) {
  static const campaign_kind on_ranks = {"ranks", 9, false, true, worst_on_ranks};
  if (argc < 2 || !find_cell(argv[1], &cell)) {
    fprintf(stderr, "campaign_ranks: expected rnn|gru|lstm SEED COUNT [MOVES]\n");
    return 2;
  }
  return campaign(&on_ranks, argc - 1, argv + 1);
}
