#include "distributed/job.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "core/base/alloc.h"
#include "distributed/agree.h"

/* ---- the split ---- */

static bppsa_status bad_split(const char *text) {
  return bppsa_fail(BPPSA_ERR_ARGUMENT, "split \"%.60s\": expected batch, time, or time:P,batch:Q with P times Q ranks", text);
}

/* Reads "batch:4" or "time:2" from *text, which then points behind it. */
static bool read_part(const char **text, bppsa_rank_split *split) {
  const bool time = strncmp(*text, "time:", 5) == 0;
  if (!time && strncmp(*text, "batch:", 6) != 0) {
    return false;
  }
  int64_t *number = time ? &split->time : &split->batch, value = 0;
  const char *at = *text + (time ? 5 : 6);
  for (; *at >= '0' && *at <= '9' && value <= BPPSA_COMM_MAX_RANKS; ++at) {
    value = 10 * value + (*at - '0');
  }
  if (value < 1 || value > BPPSA_COMM_MAX_RANKS || *number != 0) {
    return false;
  }
  *number = value;
  *text = at;
  return true;
}

bppsa_status bppsa_rank_split_parse(const char *text, int64_t ranks, bppsa_rank_split *split) {
  BPPSA_REQUIRE(text != NULL && split != NULL);
  bppsa_rank_split found = {0};
  if (strcmp(text, "batch") == 0 || strcmp(text, "time") == 0) {
    const bool time = text[0] == 't';
    *split = (bppsa_rank_split){.time = time ? ranks : 1, .batch = time ? 1 : ranks};
    return BPPSA_OK;
  }
  const char *rest = text;
  if (!read_part(&rest, &found) || *rest++ != ',' || !read_part(&rest, &found) || *rest != '\0') {
    return bad_split(text);
  }
  if (ranks > 0 && found.time * found.batch != ranks) {
    return bppsa_fail(BPPSA_ERR_ARGUMENT, "split \"%.60s\": for %" PRId64 " ranks, expected it for %" PRId64, text,
                      found.time * found.batch, ranks);
  }
  *split = found;
  return BPPSA_OK;
}

const char *bppsa_rank_split_text(const bppsa_rank_split *split, char *text, size_t size) {
  if (split->time > 1 && split->batch > 1) {
    snprintf(text, size, "time:%" PRId64 ",batch:%" PRId64, split->time, split->batch);
  } else {
    snprintf(text, size, "%s", split->time > 1 ? "time" : "batch");
  }
  return text;
}

bppsa_status bppsa_rank_split_groups(bppsa_comm *comm, const bppsa_rank_split *split, bppsa_comm **time, bppsa_comm **batch) {
  BPPSA_REQUIRE(comm != NULL && split != NULL && time != NULL && batch != NULL);
  const int32_t rank = bppsa_comm_rank(comm), along = rank % (int32_t)split->time, among = rank / (int32_t)split->time;
  bppsa_comm *first = NULL, *second = NULL;
  BPPSA_TRY(bppsa_comm_split(comm, among, along, &first));
  const bppsa_status status = bppsa_comm_split(comm, along, among, &second);
  if (status != BPPSA_OK) {
    bppsa_comm_destroy(first);
    return status;
  }
  *time = first;
  *batch = second;
  return BPPSA_OK;
}

/* ---- one error of many ranks ---- */

bppsa_status bppsa_job_agree(bppsa_comm *comm, bppsa_status status) {
  BPPSA_REQUIRE(comm != NULL);
  const int64_t none = bppsa_comm_size(comm);
  const int32_t rank = bppsa_comm_rank(comm);
  int64_t failed = status == BPPSA_OK ? none : rank;
  char message[512]; /* a copy, because waiting sets the last error */
  snprintf(message, sizeof message, "%s", status == BPPSA_OK ? "" : bppsa_last_error());
  BPPSA_TRY(bppsa_ranks_reduce(comm, BPPSA_COMM_MIN, BPPSA_I64, 1, &failed));
  if (failed == none) {
    return BPPSA_OK;
  }
  if (failed == rank) {
    return bppsa_fail(status, "%s", message);
  }
  BPPSA_TRY(bppsa_comm_barrier(comm)); /* ends when the rank that failed has returned */
  return bppsa_fail(BPPSA_ERR_COMM, "rank %" PRId64 " cannot carry out its request", failed);
}

bppsa_status bppsa_job_compare(bppsa_comm *comm, int argc, char *const *argv) {
  BPPSA_REQUIRE(comm != NULL && argv != NULL);
  const int64_t one = 1;
  uLong sum = crc32_z(0, NULL, 0);
  for (int i = 1; i < argc; ++i) {
    sum = crc32_z(sum, (const Bytef *)argv[i], strlen(argv[i]) + 1);
  }
  int64_t mine = (int64_t)sum, first = mine, least = mine, rank = bppsa_comm_rank(comm);
  const bppsa_view view = bppsa_view_make(&first, BPPSA_I64, 1, &one);
  BPPSA_TRY(bppsa_comm_broadcast(comm, 0, &view));
  least = mine == first ? bppsa_comm_size(comm) : rank;
  BPPSA_TRY(bppsa_ranks_reduce(comm, BPPSA_COMM_MIN, BPPSA_I64, 1, &least));
  return least == bppsa_comm_size(comm)
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_ARGUMENT,
                          "rank %" PRId64 ": another command line than rank 0, expected the same on all ranks", least);
}

bppsa_status bppsa_job_threads(bppsa_comm *comm, int64_t cpus, int64_t cpu_set, int64_t *threads) {
  BPPSA_REQUIRE(comm != NULL && threads != NULL);
  enum { MACHINE, SET, WORDS };
  static const char *const may_differ[WORDS] = {NULL};
  char machine[64] = "";
  (void)gethostname(machine, sizeof machine - 1);
  int64_t mine[WORDS] = {(int64_t)crc32_z(0, (const Bytef *)machine, strlen(machine)), cpu_set}, same = 0, *all;
  BPPSA_TRY(bppsa_ranks_agree(comm, "", WORDS, may_differ, mine, &all));
  for (int64_t r = 0; r < bppsa_comm_size(comm); ++r) {
    same += memcmp(&all[r * WORDS], mine, sizeof mine) == 0 ? 1 : 0;
  }
  bppsa_free(all);
  *threads = cpus / same > 1 ? cpus / same : 1; /* this rank is among them */
  return BPPSA_OK;
}

bppsa_status bppsa_job_run(const bppsa_comm_config *config, bppsa_comm_body body, void *context, bppsa_comm_outcome *outcome) {
  BPPSA_REQUIRE(outcome != NULL);
  const bppsa_status status = bppsa_comm_run(config, body, context, outcome);
  char prefix[32], message[512];
  snprintf(prefix, sizeof prefix, "rank %d: ", outcome->rank);
  const bool request =
      status == BPPSA_ERR_ARGUMENT || status == BPPSA_ERR_SHAPE || status == BPPSA_ERR_FORMAT || status == BPPSA_ERR_UNSUPPORTED;
  if (!request || outcome->rank < 0 || strncmp(bppsa_last_error(), prefix, strlen(prefix)) != 0) {
    return status;
  }
  snprintf(message, sizeof message, "%s", bppsa_last_error() + strlen(prefix));
  return bppsa_fail(status, "%s", message);
}
