/* A program for mpirun. `mpi_ranks` runs every case of cases.c. `mpi_ranks CASE` runs a case in which the job fails: each rank
 * prints a line with the status of its run, then ends the job with code 3. `mpi_ranks CASE RANKS` asks for RANKS ranks, and the
 * code is 2; `mpi_ranks end RANK` and `mpi_ranks gone RANK` stop a rank while MPI ends. tests/comm/test_mpi.sh reads the lines. */
#define _GNU_SOURCE 1 /* RTLD_DEFAULT */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "comm/comm.h"
#include "core/base/alloc.h"
#include "tests/comm/cases.h"

#define HAS(words) (strstr(bppsa_last_error(), words) != NULL)

#ifdef BPPSA_COVERAGE
void __gcov_dump(void);
#endif

/* The counts of statements that ran are lost with a process that is killed, as by the end of a job. */
static void write_counts(void) {
#ifdef BPPSA_COVERAGE
  __gcov_dump();
#endif
}

static bppsa_view view_of(void *data, int64_t count) {
  return bppsa_view_make(data, BPPSA_F64, 1, &count);
}

static bppsa_status contract(bppsa_comm *comm, void *context) {
  for (const comm_case *tried = comm_cases; tried->name != NULL; ++tried) {
    const bppsa_status status = tried->run(comm, context);
    if (status != BPPSA_OK) {
      return bppsa_fail_prefix(status, "%s", tried->name);
    }
  }
  return BPPSA_OK;
}

/* ---- cases in which the job fails ---- */

/* The other ranks wait for rank 1 in a reduction, until their deadline. */
static bppsa_status wait_for_all(bppsa_comm *comm) {
  double numbers[3] = {0};
  const bppsa_view view = view_of(numbers, 3);
  bppsa_comm_at(comm, "up-sweep", 4);
  return bppsa_comm_allreduce(comm, BPPSA_COMM_SUM, &view);
}

static bppsa_status fails(bppsa_comm *comm, void *context) {
  (void)context;
  return bppsa_comm_rank(comm) == 1 ? bppsa_fail(BPPSA_ERR_IO, "disk full") : wait_for_all(comm);
}

static bppsa_status aborts(bppsa_comm *comm, void *context) {
  (void)context;
  if (bppsa_comm_rank(comm) == 1) {
    bppsa_comm_abort(comm, "a key was pressed");
    return BPPSA_OK;
  }
  return wait_for_all(comm);
}

static bppsa_status dies(bppsa_comm *comm, void *context) {
  (void)context;
  if (bppsa_comm_rank(comm) == 1) {
    bppsa_comm_set_fault(comm, &(bppsa_comm_fault){.die_at = 2});
  }
  BPPSA_TRY(wait_for_all(comm));
  return wait_for_all(comm);
}

static bppsa_status stalls(bppsa_comm *comm, void *context) {
  (void)context;
  if (bppsa_comm_rank(comm) == 1) {
    bppsa_comm_set_fault(comm, &(bppsa_comm_fault){.stall_at = 1});
  }
  return wait_for_all(comm);
}

static bppsa_status is_stopped(bppsa_comm *comm, void *context) {
  (void)context;
  if (bppsa_comm_rank(comm) == 1) {
    (void)raise(SIGSTOP);
  }
  return wait_for_all(comm);
}

/* The rank that is stopped in front of MPI_Finalize, or, when no rank waits for it any more, behind it; -1: none. */
static int stopped_rank = -1;
static bool stops_behind;

/* bppsa_mpi.so calls this function instead of MPI's, which has a second name. */
int MPI_Finalize(void);
int MPI_Finalize(void) {
  const char *launched_as = getenv("OMPI_COMM_WORLD_RANK");
  const bool stops = launched_as != NULL && atoi(launched_as) == stopped_rank;
  void *const found = dlsym(RTLD_DEFAULT, "PMPI_Finalize");
  int (*finalize)(void) = NULL;
  memcpy(&finalize, &found, sizeof finalize);
  if (finalize == NULL || (stops && !stops_behind && raise(SIGSTOP) != 0)) {
    return 1;
  }
  const int error = finalize();
  return stops && stops_behind && raise(SIGSTOP) != 0 ? 1 : error;
}

static bppsa_status does_nothing(bppsa_comm *comm, void *context) {
  (void)comm, (void)context;
  return BPPSA_OK;
}

/* Rank 1 is stopped inside a split: MPI's own call blocks the others. */
static bool stops_in_split;

int MPI_Comm_split(void *comm, int color, int key, void *part);
int MPI_Comm_split(void *comm, int color, int key, void *part) {
  const char *launched_as = getenv("OMPI_COMM_WORLD_RANK");
  void *const found = dlsym(RTLD_DEFAULT, "PMPI_Comm_split");
  int (*call)(void *comm, int color, int key, void *part) = NULL;
  memcpy(&call, &found, sizeof call);
  if (call == NULL || (stops_in_split && launched_as != NULL && atoi(launched_as) == 1 && raise(SIGSTOP) != 0)) {
    return 1;
  }
  return call(comm, color, key, part);
}

static bppsa_status splits(bppsa_comm *comm, void *context) {
  bppsa_comm *part = NULL;
  (void)context;
  stops_in_split = true;
  bppsa_comm_at(comm, "the layout", -1);
  return bppsa_comm_split(comm, 0, 0, &part);
}

static bppsa_status is_killed(bppsa_comm *comm, void *context) {
  (void)context;
  if (bppsa_comm_rank(comm) == 1) {
    (void)raise(SIGKILL);
  }
  return wait_for_all(comm);
}

/* Only rank 0 waits, for a message that no rank sends. */
static bppsa_status sends_nothing(bppsa_comm *comm, void *context) {
  (void)context;
  double number = 0;
  const bppsa_view view = view_of(&number, 1);
  bppsa_comm_at(comm, "carry", 7);
  return bppsa_comm_rank(comm) == 0 ? bppsa_comm_recv(comm, 1, 21, &view) : BPPSA_OK;
}

/* Messages that are too long or too short, small or large: the receiver gets an error, and later messages arrive. */
static bppsa_status sizes_differ(bppsa_comm *comm, void *context) {
  (void)context;
  static double array[50000];
  static const int64_t counts[4][2] = {{5, 10}, {10, 5}, {40000, 50000}, {50000, 40000}};
  for (int i = 0; i < 4; ++i) {
    const bppsa_view sent = view_of(array, counts[i][0]), expected = view_of(array, counts[i][1]);
    char words[96];
    snprintf(words, sizeof words, "rank 1 sent %lld bytes, this rank expects %lld", 8 * (long long)counts[i][0],
             8 * (long long)counts[i][1]);
    if (bppsa_comm_rank(comm) == 1) {
      BPPSA_TRY(bppsa_comm_send(comm, 0, 3, &sent));
    } else if (bppsa_comm_rank(comm) == 0) {
      CHECK(bppsa_comm_recv(comm, 1, 3, &expected) == BPPSA_ERR_COMM);
      CHECK(HAS(words) && HAS("tag 3"));
    }
  }
  return bppsa_comm_barrier(comm);
}

static bppsa_status forgets(bppsa_comm *comm, void *context) {
  static double number;
  (void)context;
  const bppsa_view view = view_of(&number, 1);
  bppsa_comm_request *request = NULL;
  return bppsa_comm_rank(comm) == 1 ? bppsa_comm_irecv(comm, 0, 31, &view, &request) : wait_for_all(comm);
}

static const struct {
  const char *name;
  bppsa_comm_body body;
  double timeout;
} modes[] = {
    {"contract", contract, 60},  {"fails", fails, 60},         {"aborts", aborts, 60},      {"dies", dies, 60},
    {"stalls", stalls, 0.5},     {"stopped", is_stopped, 0.5}, {"killed", is_killed, 60},   {"silence", sends_nothing, 0.5},
    {"sizes", sizes_differ, 60}, {"forgets", forgets, 60},     {"start", sends_nothing, 2}, {"end", does_nothing, 1},
    {"gone", does_nothing, 1},   {"split", splits, 0.5}};

int main(int argc, char **argv) {
  bppsa_comm_config config = {.transport = BPPSA_COMM_MPI, .ranks = argc > 2 ? atoll(argv[2]) : 0};
  for (size_t i = 0; i < sizeof modes / sizeof modes[0]; ++i) {
    if (argc < 2 ? i == 0 : strcmp(argv[1], modes[i].name) == 0) {
      config.timeout = modes[i].timeout;
      bppsa_comm_outcome outcome;
      const char *launched_as = getenv("OMPI_COMM_WORLD_RANK");
      if (strcmp(modes[i].name, "start") == 0 && launched_as != NULL && strcmp(launched_as, "1") == 0) {
        (void)raise(SIGSTOP); /* before MPI is started */
      }
      stops_behind = strcmp(modes[i].name, "gone") == 0;
      if (modes[i].body == does_nothing) {
        stopped_rank = (int)config.ranks;
        config.ranks = 0;
      }
      const int64_t blocks = bppsa_alloc_live();
      const bppsa_status status = bppsa_comm_run(&config, modes[i].body, NULL, &outcome);
      if (status == BPPSA_OK) {
        return bppsa_alloc_live() == blocks ? 0 : 5;
      }
      fprintf(stderr, "%s %s: failed %d: %s\n", outcome.here ? "HERE" : "ELSEWHERE", bppsa_status_name(status), outcome.rank,
              bppsa_last_error());
      fflush(stderr);
      write_counts();
      bppsa_comm_end_job(argc > 2 ? 2 : 3);
      return 4;
    }
  }
  fprintf(stderr, "mpi_ranks: no such case\n");
  return 2;
}
