#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* fopencookie */
#endif
#include "cli/rank_job.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "core/base/alloc.h"

/* A stream that passes on what is written to it, until it is closed. */
typedef struct {
  pthread_mutex_t mutex;
  FILE *to;     /* the caller's stream; NULL: closed */
  FILE *stream; /* what ranks write to; NULL: none was made */
} gate;

enum { OUT = 0, ERR, GATES };

struct bppsa_rank_job {
  atomic_int holders;
  bppsa_rank_work work;
  bppsa_cli cli;
  bppsa_interrupt interrupt;
  char **argv; /* argc words and a NULL; owned */
  gate gates[GATES];
};

/* ---- streams ---- */

/* Writes to the caller's stream and flushes it, because the stream in front of it has no buffer. */
static ssize_t pass_on(void *cookie, const char *text, size_t size) {
  gate *g = cookie;
  (void)pthread_mutex_lock(&g->mutex);
  const bool good = g->to == NULL || (fwrite(text, 1, size, g->to) == size && fflush(g->to) == 0);
  const int reason = errno;
  (void)pthread_mutex_unlock(&g->mutex);
  errno = reason;
  return good ? (ssize_t)size : 0;
}

/* Puts a stream with a gate in front of *stream. Standard output and error stay what they are: they exist as long as the process,
 * and progress is shown where they are terminals. */
static bool open_gate(gate *g, FILE **stream) {
  (void)pthread_mutex_init(&g->mutex, NULL);
  if (*stream == stdout || *stream == stderr) {
    return true;
  }
  g->to = *stream;
  g->stream = fopencookie(g, "w", (cookie_io_functions_t){.write = pass_on});
  if (g->stream == NULL) {
    return false;
  }
  setbuf(g->stream, NULL);
  *stream = g->stream;
  return true;
}

static void close_gate(gate *g) {
  (void)pthread_mutex_lock(&g->mutex);
  g->to = NULL;
  (void)pthread_mutex_unlock(&g->mutex);
}

/* ---- words ---- */

static char **copy_words(int argc, char *const *argv) {
  size_t bytes = 0;
  for (int i = 0; i < argc; ++i) {
    bytes += strlen(argv[i]) + 1;
  }
  const size_t list = ((size_t)argc + 1) * sizeof *argv;
  char **made = bppsa_alloc(list + bytes);
  char *at = made == NULL ? NULL : (char *)made + list;
  for (int i = 0; made != NULL && i < argc; ++i) {
    made[i] = at;
    at = stpcpy(at, argv[i]) + 1;
  }
  if (made != NULL) {
    made[argc] = NULL;
  }
  return made;
}

/* Returns where the copied words have this text. A text outside the words is the program's own and is returned itself. */
static const char *find_copy(const bppsa_cli *cli, char *const *copy, const char *text) {
  for (int i = 0; text != NULL && i < cli->argc; ++i) {
    const uintptr_t first = (uintptr_t)cli->argv[i], at = (uintptr_t)text;
    if (at >= first && at - first <= strlen(cli->argv[i])) {
      return copy[i] + (at - first);
    }
  }
  return text;
}

/* ---- the job ---- */

static bppsa_status fill(const bppsa_cli *cli, bppsa_rank_job *job) {
  job->argv = copy_words(cli->argc, cli->argv);
  if (job->argv == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  job->cli = *cli;
  job->interrupt.told = cli->interrupt->told;
  job->cli.interrupt = &job->interrupt;
  job->cli.argv = job->argv;
  job->cli.object = find_copy(cli, job->argv, cli->object);
  for (int i = 0; i < BPPSA_OPTION_COUNT; ++i) {
    job->cli.values[i].text = find_copy(cli, job->argv, cli->values[i].text);
  }
  return open_gate(&job->gates[OUT], &job->cli.to.out) && open_gate(&job->gates[ERR], &job->cli.to.err)
             ? BPPSA_OK
             : bppsa_fail(BPPSA_ERR_MEMORY, "ranks: out of memory, expected room for a stream");
}

static void destroy(bppsa_rank_job *job) {
  for (int i = 0; i < GATES; ++i) {
    if (job->gates[i].stream != NULL) {
      (void)fclose(job->gates[i].stream);
    }
    (void)pthread_mutex_destroy(&job->gates[i].mutex);
  }
  bppsa_free(job->argv);
  bppsa_free(job);
}

bppsa_status bppsa_rank_job_create(const bppsa_cli *cli, bppsa_rank_work work, bppsa_rank_job **job) {
  bppsa_rank_job *made = bppsa_calloc(1, sizeof *made);
  if (made == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  atomic_init(&made->holders, 2);
  made->work = work;
  const bppsa_status status = fill(cli, made);
  if (status != BPPSA_OK) {
    destroy(made);
    return status;
  }
  *job = made;
  return BPPSA_OK;
}

const bppsa_cli *bppsa_rank_job_cli(const bppsa_rank_job *job) {
  return &job->cli;
}

bppsa_rank_work bppsa_rank_job_work(const bppsa_rank_job *job) {
  return job->work;
}

void bppsa_rank_job_close(bppsa_rank_job *job) {
  for (int i = 0; i < GATES; ++i) {
    close_gate(&job->gates[i]);
  }
  bppsa_interrupt_end(&job->interrupt);
}

void bppsa_rank_job_release(void *job) {
  bppsa_rank_job *j = job;
  if (atomic_fetch_sub(&j->holders, 1) == 1) {
    destroy(j);
  }
}
