/* Predicts from earlier points how a rival will do, so that no time goes into passes that are known to lose.
 *
 * Points are of one shape when they differ in T and in their weights alone. A rival's time at a point is the sum over its phases of
 * their medians, or of the single pass by which it did not qualify (core/measure/rounds.h). A rival that took more than twice as
 * long as the fastest one at a shorter T of the shape is lost at longer ones. Its predicted time is its time at the longest of the
 * shorter T, times the ratio of the lengths. Earlier points are the rows that the run has made, and those of files that --earlier
 * names.
 */
#ifndef BPPSA_BENCH_HARNESS_OUTLOOK_H
#define BPPSA_BENCH_HARNESS_OUTLOOK_H

#include "core/files/json.h"
#include "recurrent/recurrent.h"

/* A rival whose qualifying pass takes more than so many times as long as the fastest rival's is not timed in rounds, and makes no
 * qualifying pass that is predicted to take longer than so many seconds. */
#define BPPSA_OUTLOOK_TIMES 2.0
#define BPPSA_OUTLOOK_SECONDS 1.0

/* Reads a file of JSON documents, a line each, and collects the rows of those that `bench` wrote (owned), without those that name
 * another model. Blank lines are passed over. ERR_ARGUMENT: it cannot be read, or a line is no document; the message names the
 * line. ERR_MEMORY. */
bppsa_status bppsa_outlook_read(const char *path, const char *bench, const char *model, json_t **rows);

typedef struct bppsa_outlook bppsa_outlook;

/* Collects the rivals' times of the rows (arrays, or NULL), which are borrowed. The outlook is for a point of this configuration.
 * ERR_MEMORY. */
bppsa_status bppsa_outlook_create(const json_t *earlier, const json_t *rows, const bppsa_recurrent_config *config,
                                  bppsa_outlook **outlook);
void bppsa_outlook_destroy(bppsa_outlook *outlook); /* NULL is legal */

typedef struct {
  double seconds;  /* predicted for the point; 0: nothing is known */
  double times;    /* the largest ratio of its time to that of the fastest rival */
  int64_t seq_len; /* the shorter T at which the ratio is that large */
} bppsa_rival_outlook;

/* What is known of the rival `method`. form: another name of the same rival, such as that of its graph, or NULL. The ratio takes
 * the faster of the two at every T, the prediction the slower. */
bppsa_rival_outlook bppsa_outlook_of(const bppsa_outlook *outlook, const char *method, const char *form);
/* The fastest rival of the latest point of any shape; "": there is none. */
const char *bppsa_outlook_winner(const bppsa_outlook *outlook);

/* OK, or ERR_UNSUPPORTED for a rival that is lost or would take too long: "not run: 8.3 times as long as the fastest rival at T
 * 1000, predicted 84 ms". */
bppsa_status bppsa_outlook_check(const bppsa_rival_outlook *rival);

/* Which member comes i-th when member `first` goes to the front of the list. */
int bppsa_outlook_order(int first, int i);

#endif
