/* The ranks of `bench ranks`: what each of them holds of an entry, and the orders that rank 0 gives. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/cases/bench_ranks.h"
#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/base/philox.h"
#include "core/compute/memory.h"
#include "core/measure/rounds.h"
#include "distributed/time/split_time.h"

/* ---- numbers ---- */

enum { INPUTS = 240, SEEDS = 241 }; /* streams of core/base/philox.h */

void bppsa_ranks_fill(const bppsa_ranks_subject *s, uint64_t seed, bool inputs, int64_t from_step, int64_t first,
                      const bppsa_view *view) {
  const bppsa_network_config *c = &s->config;
  const bool steps = s->network.kind->family->steps && (inputs || c->loss_all);
  const int64_t rows = steps ? view->shape[0] : 1, samples = view->shape[steps ? 1 : 0], width = inputs ? c->input : c->classes;
  const double rows_of_loss = (double)c->batch * (c->loss_all ? (double)c->steps.seq_len : 1);
  const double scale = sqrt(12) * (inputs ? 1 : 1 / rows_of_loss); /* of numbers between -1/2 and 1/2 */
  for (int64_t t = 0; t < rows; ++t) {
    for (int64_t i = 0; i < samples * width; ++i) {
      const int64_t place = ((steps ? from_step + t : 0) * c->batch + first) * width + i;
      const double u = bppsa_random_double(seed, inputs ? INPUTS : SEEDS, (uint64_t)place);
      bppsa_view_set(view, t * samples * width + i, scale * (u - 0.5));
    }
  }
}

bppsa_network_config bppsa_ranks_config(const bppsa_ranks_subject *subject, const bppsa_ranks_entry *entry) {
  bppsa_network_config config = subject->config;
  config.method = entry->method;
  config.steps.forward = entry->forward;
  return config;
}

static bppsa_data_parallel_config parallel_of(const bppsa_ranks_subject *s, const bppsa_ranks_entry *e) {
  bppsa_data_parallel_config config = bppsa_data_parallel_config_default();
  config.batch = s->config.batch;
  config.bucket_bytes = 1; /* a bucket for every parameter */
  config.in_order = e->scheme != NULL && strcmp(e->scheme, "wait-free") == 0;
  config.reverse_first = e->reverse_first;
  return config;
}

int64_t bppsa_ranks_block(const bppsa_ranks_subject *subject, const bppsa_ranks_entry *entry) {
  const bppsa_data_parallel_config config = parallel_of(subject, entry);
  return bppsa_data_parallel_block(&config, entry->ranks);
}

/* ---- a part ---- */

static bool on_gpu(const bppsa_ranks_crew *crew) {
  return bppsa_device_get_kind(crew->device) == BPPSA_CUDA;
}

static void free_part(const bppsa_device *device, bppsa_ranks_part *p) {
  bppsa_data_parallel_destroy(p->parallel);
  bppsa_model_destroy(p->model);
  for (int64_t i = 0; i < p->count; ++i) {
    bppsa_memory_free(device, p->x != NULL ? p->x[i].data : NULL);
    bppsa_memory_free(device, p->seeds != NULL ? p->seeds[i] : NULL);
  }
  bppsa_free(p->x);
  bppsa_free((void *)p->seeds);
  *p = (bppsa_ranks_part){0};
}

/* Makes an array of inputs or seeds in the device's memory; view->data NULL on failure. */
static bppsa_status make_numbers(const bppsa_ranks_crew *crew, bool inputs, int64_t from_step, int64_t first, bppsa_view *view) {
  const int64_t bytes = (int64_t)bppsa_view_bytes(view);
  view->data = bppsa_calloc(bytes + 1, 1);
  if (view->data == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  bppsa_ranks_fill(&crew->subjects[crew->subject], crew->asked->request.seed, inputs, from_step, first, view);
  if (!on_gpu(crew)) {
    return BPPSA_OK;
  }
  void *host = view->data;
  view->data = NULL;
  view->device = BPPSA_CUDA;
  bppsa_status status = bppsa_memory_alloc(crew->device, bytes, &view->data);
  status = status == BPPSA_OK ? bppsa_memory_put(crew->device, view->data, host, bytes) : status;
  bppsa_free(host);
  return status;
}

/* Makes the numbers of block i: `samples` samples from the first one on, of `rows` steps. */
static bppsa_status make_block(const bppsa_ranks_crew *crew, bppsa_ranks_part *p, int64_t i, int64_t from_step, int64_t rows,
                               int64_t first, int64_t samples) {
  const bppsa_ranks_subject *s = &crew->subjects[crew->subject];
  const bppsa_network_config *c = &s->config;
  const bool steps = s->network.kind->family->steps;
  const int64_t *in = s->network.layers.in;
  const int64_t sequence[] = {rows, samples, c->input}, images[] = {samples, in[0], in[1], in[2]};
  const int64_t last[] = {samples, c->classes}, all[] = {rows, samples, c->classes};
  bppsa_view seed = bppsa_view_make(NULL, c->dtype, c->loss_all ? 3 : 2, c->loss_all ? all : last);
  p->x[i] = bppsa_view_make(NULL, c->dtype, steps ? 3 : 4, steps ? sequence : images);
  BPPSA_TRY(make_numbers(crew, true, from_step, first, &p->x[i]));
  const bppsa_status status = make_numbers(crew, false, from_step, first, &seed);
  p->seeds[i] = seed.data;
  return status;
}

static bppsa_status reserve(bppsa_ranks_part *p, int64_t count) {
  p->x = bppsa_calloc(count + 1, sizeof *p->x);
  p->seeds = bppsa_calloc(count + 1, sizeof *p->seeds);
  if (p->x == NULL || p->seeds == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  p->count = count;
  return BPPSA_OK;
}

static bppsa_status make_alone(const bppsa_ranks_crew *crew, bppsa_ranks_part *p) {
  const bppsa_ranks_subject *s = &crew->subjects[crew->subject];
  const bppsa_network_config config = bppsa_ranks_config(s, p->entry);
  BPPSA_TRY(bppsa_network_create(&s->network, &config, crew->device, &p->model));
  BPPSA_TRY(bppsa_network_init(&s->network, p->model, crew->asked->point.init, crew->asked->request.seed));
  BPPSA_TRY(reserve(p, 1));
  return make_block(crew, p, 0, 0, config.steps.seq_len, 0, config.batch);
}

static bppsa_status make_along_time(const bppsa_ranks_crew *crew, bppsa_ranks_part *p) {
  const bppsa_ranks_subject *s = &crew->subjects[crew->subject];
  const bppsa_network_config config = bppsa_ranks_config(s, p->entry);
  const bppsa_recurrent_config recurrent = bppsa_network_recurrent_config(&config);
  const bppsa_split_time split = {.comm = p->group, .tag = 512, .micro_batches = crew->asked->micro_batches};
  int64_t first, steps;
  bppsa_ranks_share(recurrent.seq_len, bppsa_comm_size(p->group), bppsa_comm_rank(p->group), &first, &steps);
  BPPSA_TRY(bppsa_split_time_create(&split, &recurrent, s->network.kind->cell, crew->device, &p->model));
  BPPSA_TRY(bppsa_split_time_init(p->model, crew->asked->point.init, crew->asked->request.seed));
  BPPSA_TRY(reserve(p, 1));
  return make_block(crew, p, 0, first, steps, 0, recurrent.batch);
}

static bppsa_status make_data_parallel(const bppsa_ranks_crew *crew, bppsa_ranks_part *p) {
  const bppsa_ranks_subject *s = &crew->subjects[crew->subject];
  const bppsa_data_parallel_config parallel = parallel_of(s, p->entry);
  const int64_t block = bppsa_ranks_block(s, p->entry), batch = s->config.batch;
  bppsa_network_config config = bppsa_ranks_config(s, p->entry);
  int64_t first, count, all;
  config.batch = block;
  config.delayed = parallel.reverse_first;
  BPPSA_TRY(bppsa_network_create(&s->network, &config, crew->device, &p->model));
  BPPSA_TRY(bppsa_network_init(&s->network, p->model, crew->asked->point.init, crew->asked->request.seed));
  BPPSA_TRY(bppsa_data_parallel_create(p->group, p->model, &parallel, &p->parallel));
  bppsa_data_parallel_share(p->parallel, batch, &first, &count, &all);
  BPPSA_TRY(reserve(p, count));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t from = (first + i) * block, left = batch - from;
    BPPSA_TRY(make_block(crew, p, i, 0, config.steps.seq_len, from, left < block ? left : block));
  }
  return BPPSA_OK;
}

static bppsa_comm *group_of(const bppsa_ranks_crew *crew, const bppsa_ranks_entry *e) {
  for (int64_t g = 0; e->share != BPPSA_RANKS_ALONE && g < crew->group_count; ++g) {
    if (crew->sizes[g] == e->ranks) {
      return crew->groups[g];
    }
  }
  return NULL;
}

/* ---- passes ---- */

/* Waits for a GPU, which has only queued the work. */
static bppsa_status wait_for(const bppsa_model *model) {
  return model->device != NULL ? bppsa_device_wait(model->device) : BPPSA_OK;
}

static bppsa_status compute(bppsa_ranks_part *p, int64_t i) {
  bppsa_view logits;
  const double start = bppsa_now();
  BPPSA_TRY(p->model->ops->forward(p->model, &p->x[i], NULL, &logits));
  BPPSA_TRY(wait_for(p->model));
  const double between = bppsa_now();
  bppsa_view seed = bppsa_view_make(p->seeds[i], logits.dtype, logits.ndim, logits.shape);
  seed.device = logits.device;
  BPPSA_TRY(p->model->ops->backward(p->model, &seed));
  BPPSA_TRY(wait_for(p->model));
  const double forward = between - start, backward = bppsa_now() - between;
  p->forward_s = p->forward_s == 0 || forward < p->forward_s ? forward : p->forward_s;
  p->backward_s = p->backward_s == 0 || backward < p->backward_s ? backward : p->backward_s;
  return BPPSA_OK;
}

/* The work of one pass. next: the block of data parallelism that is computed next. */
typedef struct {
  bppsa_ranks_part *part;
  int64_t next;
} blocks;

static bppsa_status compute_block(void *context, int64_t first, int64_t count, bppsa_data_parallel_sums *sums) {
  blocks *b = context;
  (void)first;
  (void)count;
  *sums = (bppsa_data_parallel_sums){0};
  return compute(b->part, b->next++);
}

static bppsa_status work(const bppsa_ranks_crew *crew, bppsa_ranks_part *p) {
  bppsa_data_parallel_sums sums;
  blocks b = {p, 0};
  if (p->parallel == NULL) {
    return compute(p, 0);
  }
  BPPSA_TRY(bppsa_data_parallel_compute(p->parallel, crew->subjects[crew->subject].config.batch, compute_block, &b, &sums));
  return wait_for(p->model);
}

/* Times a pass: all ranks of the entry begin together, and it is over when the slowest one has ended. */
static bppsa_status timed_work(const bppsa_ranks_crew *crew, bppsa_ranks_part *p) {
  const int64_t one = 1;
  const bppsa_view view = bppsa_view_make(&p->reduced_s, BPPSA_F64, 1, &one);
  BPPSA_TRY(p->group != NULL ? bppsa_comm_barrier(p->group) : BPPSA_OK);
  const double start = bppsa_now();
  BPPSA_TRY(work(crew, p));
  p->reduced_s = bppsa_now() - start;
  return p->group != NULL ? bppsa_comm_allreduce(p->group, BPPSA_COMM_MAX, &view) : BPPSA_OK;
}

/* Counts the bytes that this rank holds: its own in the host's memory, and all that the process holds in its GPU's. */
static int64_t held_bytes(const bppsa_ranks_crew *crew) {
  int64_t held, peak;
  bppsa_comm_get_memory(crew->world, &held, &peak);
  return held + bppsa_memory_held(crew->device);
}

static bppsa_status counted_work(const bppsa_ranks_crew *crew, bppsa_ranks_part *p) {
  bppsa_comm *const nccl = crew->arrays != crew->world ? p->group : NULL; /* NCCL's communicator counts separately */
  bppsa_comm_counters counters, own = {0};
  bppsa_comm_reset_counters(crew->world);
  if (nccl != NULL) {
    bppsa_comm_reset_counters(nccl);
  }
  BPPSA_TRY(work(crew, p));
  bppsa_comm_get_counters(crew->world, &counters);
  if (nccl != NULL) {
    bppsa_comm_get_counters(nccl, &own);
  }
  const int64_t counts[BPPSA_RANKS_COUNTS] = {counters.messages_sent + own.messages_sent, counters.bytes_sent + own.bytes_sent,
                                              counters.collectives + own.collectives,
                                              counters.collective_bytes + own.collective_bytes, held_bytes(crew) - p->before};
  memcpy(p->counts, counts, sizeof counts);
  return BPPSA_OK;
}

/* ---- orders ---- */

/* Makes this rank's part of an entry, if it has one. */
static bppsa_status make(void *context, const int64_t *numbers) {
  static bppsa_status (*const makers[])(const bppsa_ranks_crew *crew, bppsa_ranks_part *p) = {make_alone, make_along_time,
                                                                                              make_data_parallel};
  const int64_t subject = numbers[0], entry = numbers[1];
  bppsa_ranks_crew *crew = context;
  const bppsa_ranks_entry *e = &crew->subjects[subject].entries[entry];
  bppsa_ranks_part *p = &crew->parts[entry];
  crew->subject = subject;
  if (bppsa_comm_rank(crew->world) >= e->ranks) {
    return BPPSA_OK;
  }
  *p = (bppsa_ranks_part){.entry = e, .group = group_of(crew, e)};
  p->before = held_bytes(crew);
  /* ranks that share a GPU allocate nothing until all of them have counted */
  BPPSA_TRY(crew->gpus > 0 && p->group != NULL ? bppsa_comm_barrier(p->group) : BPPSA_OK);
  return makers[e->share](crew, p);
}

/* Brings the counts of the entry's ranks to rank 0, as their maxima and sums: two reductions. */
static bppsa_status gather(const bppsa_ranks_part *p, bppsa_ranks_report *report) {
  const int64_t count = BPPSA_RANKS_COUNTS;
  bppsa_ranks_report made;
  memcpy(made.most, p->counts, sizeof made.most);
  memcpy(made.all, p->counts, sizeof made.all);
  const bppsa_view most = bppsa_view_make(made.most, BPPSA_I64, 1, &count), all = bppsa_view_make(made.all, BPPSA_I64, 1, &count);
  BPPSA_TRY(p->group != NULL ? bppsa_comm_allreduce(p->group, BPPSA_COMM_MAX, &most) : BPPSA_OK);
  BPPSA_TRY(p->group != NULL ? bppsa_comm_allreduce(p->group, BPPSA_COMM_SUM, &all) : BPPSA_OK);
  *report = made;
  return BPPSA_OK;
}

static bppsa_status pass(void *context, const int64_t *entry) {
  bppsa_ranks_crew *crew = context;
  bppsa_ranks_part *p = &crew->parts[*entry];
  return p->model != NULL ? timed_work(crew, p) : BPPSA_OK;
}

static bppsa_status count(void *context, const int64_t *entry) {
  bppsa_ranks_crew *crew = context;
  bppsa_ranks_part *p = &crew->parts[*entry];
  BPPSA_TRY(p->model != NULL ? counted_work(crew, p) : BPPSA_OK);
  return p->model != NULL ? gather(p, &crew->report) : BPPSA_OK;
}

static bppsa_status drop(void *context, const int64_t *none) {
  bppsa_ranks_crew *crew = context;
  (void)none;
  for (int64_t i = BPPSA_RANKS_ENTRIES - 1; crew->parts != NULL && i >= 0; --i) {
    free_part(crew->device, &crew->parts[i]);
  }
  return BPPSA_OK;
}

/* Rank 0 sends to rank 1 and back. */
static bppsa_status ping_one(bppsa_comm *world, const bppsa_view *view) {
  const int32_t rank = bppsa_comm_rank(world);
  if (rank == 0) {
    BPPSA_TRY(bppsa_comm_send(world, 1, 0, view));
    return bppsa_comm_recv(world, 1, 0, view);
  }
  BPPSA_TRY(rank == 1 ? bppsa_comm_recv(world, 0, 0, view) : BPPSA_OK);
  return rank == 1 ? bppsa_comm_send(world, 0, 0, view) : BPPSA_OK;
}

/* Rank 0 broadcasts, and the last rank answers. */
static bppsa_status ping_all(bppsa_comm *world, const bppsa_view *view) {
  const int64_t one = 1;
  const int32_t rank = bppsa_comm_rank(world), last = bppsa_comm_size(world) - 1;
  char byte = 0;
  const bppsa_view answer = bppsa_view_make(&byte, BPPSA_U8, 1, &one);
  BPPSA_TRY(bppsa_comm_broadcast(world, 0, view));
  BPPSA_TRY(rank == last ? bppsa_comm_send(world, 0, 0, &answer) : BPPSA_OK);
  return rank == 0 ? bppsa_comm_recv(world, last, 0, &answer) : BPPSA_OK;
}

static bppsa_status time_rounds(const bppsa_ranks_crew *crew, bool broadcast, const bppsa_view *view, int64_t rounds,
                                double *seconds) {
  for (int64_t i = 0; i < rounds; ++i) {
    const double start = bppsa_now();
    BPPSA_TRY(broadcast ? ping_all(crew->arrays, view) : ping_one(crew->arrays, view));
    seconds[i] = (bppsa_now() - start) / (broadcast ? 1 : 2);
  }
  return BPPSA_OK;
}

/* Times messages between arrays in the device's memory. */
static bppsa_status ping(void *context, const int64_t *numbers) {
  const int64_t bytes = numbers[1], rounds = numbers[2];
  bppsa_ranks_crew *crew = context;
  bppsa_view view = bppsa_view_make(NULL, BPPSA_U8, 1, &bytes);
  double *seconds = bppsa_calloc(rounds, sizeof *seconds);
  view.device = bppsa_device_get_kind(crew->device);
  bppsa_status status = seconds == NULL ? BPPSA_ERR_MEMORY : bppsa_memory_alloc(crew->device, bytes, &view.data);
  status = status == BPPSA_OK ? bppsa_memory_clear(crew->device, view.data, bytes) : status;
  status = status == BPPSA_OK ? time_rounds(crew, numbers[0] != 0, &view, rounds, seconds) : status;
  crew->ping_s = status == BPPSA_OK ? bppsa_timing_of(rounds, seconds).median_s : 0;
  bppsa_memory_free(crew->device, view.data);
  bppsa_free(seconds);
  return status;
}

enum { MAKE = 0, PASS, COUNT, DROP, PING };
static const bppsa_crew_action actions[] = {
    [MAKE] = {make, false}, [PASS] = {pass, false}, [COUNT] = {count, false}, [DROP] = {drop, false}, [PING] = {ping, false}};

static bppsa_status order(bppsa_ranks_crew *crew, int64_t action, int64_t first, int64_t second, int64_t third) {
  return bppsa_crew_order(crew->world, actions, crew, action, (const int64_t[BPPSA_CREW_NUMBERS]){first, second, third});
}

bppsa_status bppsa_ranks_crew_make(bppsa_ranks_crew *crew, int64_t subject, int64_t entry) {
  return order(crew, MAKE, subject, entry, 0);
}

bppsa_status bppsa_ranks_crew_pass(bppsa_ranks_crew *crew, int64_t entry, double *seconds) {
  BPPSA_TRY(order(crew, PASS, entry, 0, 0));
  *seconds = crew->parts[entry].reduced_s;
  return BPPSA_OK;
}

bppsa_status bppsa_ranks_crew_count(bppsa_ranks_crew *crew, int64_t entry, bppsa_ranks_report *report) {
  BPPSA_TRY(order(crew, COUNT, entry, 0, 0));
  *report = crew->report;
  return BPPSA_OK;
}

bppsa_status bppsa_ranks_crew_drop(bppsa_ranks_crew *crew) {
  return order(crew, DROP, 0, 0, 0);
}

bppsa_status bppsa_ranks_crew_ping(bppsa_ranks_crew *crew, bool broadcast, int64_t bytes, int64_t rounds, double *seconds) {
  BPPSA_TRY(order(crew, PING, broadcast, bytes, rounds));
  *seconds = crew->ping_s;
  return BPPSA_OK;
}

bppsa_status bppsa_ranks_crew_serve(const bppsa_bench_request *request, const struct bppsa_bench_settings *asked) {
  bppsa_ranks_crew crew;
  bppsa_status status = bppsa_ranks_crew_open(asked, request->device, &crew);
  status = status == BPPSA_OK ? bppsa_crew_serve(crew.world, actions, &crew) : status;
  bppsa_ranks_crew_close(&crew);
  return status;
}

/* ---- the crew ---- */

static bppsa_ranks_entry *add(bppsa_ranks_subject *s, bppsa_ranks_share_of share, int32_t ranks, const char *name) {
  bppsa_ranks_entry *e = &s->entries[s->count++];
  *e = (bppsa_ranks_entry){
      .share = share, .ranks = ranks, .method.backward = BPPSA_BACKWARD_BP, .forward = bppsa_forward_method_default()};
  snprintf(e->name, sizeof e->name, "%s", name);
  return e;
}

/* Adds an entry of a backward pass that follows a forward pass of this kind; the name tells the kind unless it is sequential. */
static bppsa_ranks_entry *add_behind(bppsa_ranks_subject *s, bppsa_ranks_share_of share, int32_t ranks, const char *backward,
                                     const bppsa_forward_method *forward) {
  char name[40];
  const bool tells = forward->kind != BPPSA_FORWARD_SEQUENTIAL;
  snprintf(name, sizeof name, "%s%s%s", backward, tells ? "-" : "", tells ? bppsa_forward_name(forward->kind) : "");
  bppsa_ranks_entry *e = add(s, share, ranks, name);
  e->forward = *forward;
  return e;
}

/* Adds BP and all algorithms of scans but auto. */
static void add_methods(bppsa_ranks_subject *s, int32_t ranks, const bppsa_forward_method *forward) {
  (void)add_behind(s, BPPSA_RANKS_TIME, ranks, "bp", forward);
  for (int i = 0; i < BPPSA_SCAN_ALGORITHMS; ++i) {
    if (i != BPPSA_SCAN_AUTO) {
      bppsa_ranks_entry *e = add_behind(s, BPPSA_RANKS_TIME, ranks, bppsa_scan_algorithm_name((bppsa_scan_algorithm)i), forward);
      e->method = (bppsa_gradient_method){BPPSA_BACKWARD_SCAN, {(bppsa_scan_algorithm)i, -1, 0}};
    }
  }
}

/* Adds the schemes of data parallelism. With one layer all orders are the same; so they are on a GPU, whose gradients leave when
 * the pass is over. A recurrent network cannot put off its weight gradients. */
static void add_schemes(bppsa_ranks_subject *s, int32_t ranks, bool gpu) {
  int64_t layers = 0; /* layers with weights */
  for (int64_t i = 0; i < s->network.layers.count; ++i) {
    layers += bppsa_cnn_has_weights(&s->network.layers.layers[i]);
  }
  add(s, BPPSA_RANKS_BATCH, ranks, "wait-free")->scheme = "wait-free";
  if (gpu) {
    return;
  }
  if (layers > 1 || s->config.steps.layers > 1) {
    add(s, BPPSA_RANKS_BATCH, ranks, "priority")->scheme = "priority";
  }
  for (int64_t k = 1; k < layers; ++k) {
    char name[40];
    snprintf(name, sizeof name, "reverse-first-%" PRId64, k);
    bppsa_ranks_entry *e = add(s, BPPSA_RANKS_BATCH, ranks, name);
    e->scheme = "reverse-first-k";
    e->reverse_first = k;
  }
}

/* Lists the rows: those of a single rank first, then the others by the number of ranks. */
static void list_entries(const bppsa_ranks_crew *crew, bppsa_ranks_subject *s) {
  const bool steps = s->network.kind->family->steps;
  const bppsa_forward_method sequential = bppsa_forward_method_default(), *asked = &crew->asked->point.config.forward;
  const bool both = steps && asked->kind != BPPSA_FORWARD_SEQUENTIAL;
  (void)add(s, BPPSA_RANKS_ALONE, 1, "bp");
  if (both) {
    (void)add_behind(s, BPPSA_RANKS_ALONE, 1, "bp", asked);
  }
  if (steps) { /* Blelloch's scan without up-levels is the linear scan, over Jacobians as the scans over ranks */
    add(s, BPPSA_RANKS_ALONE, 1, "linear")->method = (bppsa_gradient_method){BPPSA_BACKWARD_SCAN, {BPPSA_SCAN_BLELLOCH, 0, 0}};
    add(s, BPPSA_RANKS_ALONE, 1, "chunked")->method = (bppsa_gradient_method){BPPSA_BACKWARD_SCAN, {BPPSA_SCAN_CHUNKED, -1, 0}};
  }
  for (int64_t g = 0; g < crew->group_count; ++g) {
    if (steps && crew->asked->shares != BPPSA_BENCH_SHARES_BATCH) {
      add_methods(s, crew->sizes[g], &sequential);
      if (both) {
        add_methods(s, crew->sizes[g], asked);
      }
    }
    if (crew->asked->shares != BPPSA_BENCH_SHARES_TIME) {
      add_schemes(s, crew->sizes[g], crew->gpus > 0);
    }
  }
}

static bppsa_status open_subjects(bppsa_ranks_crew *crew) {
  const struct bppsa_bench_settings *asked = crew->asked;
  const char *const names[BPPSA_RANKS_NETWORKS] = {asked->point.kind->name, "lenet5"};
  for (int i = 0; i < BPPSA_RANKS_NETWORKS; ++i) {
    bppsa_ranks_subject *s = &crew->subjects[i];
    const bppsa_recurrent_config *c = &asked->point.config;
    BPPSA_TRY(bppsa_network_open(names[i], NULL, &s->network));
    s->config = bppsa_network_config_default(&s->network);
    s->config.dtype = c->dtype;
    s->config.batch = c->batch;
    if (s->network.kind->family->steps) {
      s->config.input = c->input;
      s->config.classes = c->classes;
      s->config.loss_all = c->loss_all;
      s->config.steps.seq_len = c->seq_len;
      s->config.steps.hidden = c->hidden;
      s->config.steps.layers = c->layers;
      s->config.steps.nonlinearity = c->nonlinearity;
    }
    list_entries(crew, s);
  }
  return BPPSA_OK;
}

/* Makes the communicator for the device's arrays, and counts the GPUs on which the ranks of a node compute: ranks get them in order
 * from the first one. */
static bppsa_status connect(bppsa_ranks_crew *crew) {
  int64_t gpus = (int64_t)bppsa_device_get_index(crew->device) + 1;
  const bppsa_view view = bppsa_view_make(&gpus, BPPSA_I64, 0, NULL);
  crew->arrays = crew->world;
  if (!on_gpu(crew)) {
    return BPPSA_OK;
  }
  bppsa_comm_set_device(crew->world, crew->device);
  BPPSA_TRY(bppsa_comm_allreduce(crew->world, BPPSA_COMM_MAX, &view));
  crew->gpus = gpus;
  return crew->asked->nccl ? bppsa_comm_create_nccl(crew->world, crew->device, &crew->arrays) : BPPSA_OK;
}

bppsa_status bppsa_ranks_crew_open(const struct bppsa_bench_settings *asked, const bppsa_device *device, bppsa_ranks_crew *crew) {
  *crew = (bppsa_ranks_crew){.asked = asked, .device = device, .world = asked->comm};
  const int32_t size = bppsa_comm_size(crew->world), rank = bppsa_comm_rank(crew->world);
  crew->subjects = bppsa_calloc(BPPSA_RANKS_NETWORKS, sizeof *crew->subjects);
  crew->parts = bppsa_calloc(BPPSA_RANKS_ENTRIES, sizeof *crew->parts);
  if (crew->subjects == NULL || crew->parts == NULL) {
    return BPPSA_ERR_MEMORY;
  }
  BPPSA_TRY(connect(crew));
  for (int32_t ranks = 1; crew->group_count == 0 || crew->sizes[crew->group_count - 1] < size; ranks *= 2) {
    const int64_t g = crew->group_count;
    crew->sizes[g] = ranks < size ? ranks : size;
    BPPSA_TRY(bppsa_comm_split(crew->arrays, rank < crew->sizes[g] ? 0 : -1, rank, &crew->groups[g]));
    ++crew->group_count;
  }
  return open_subjects(crew);
}

void bppsa_ranks_crew_close(bppsa_ranks_crew *crew) {
  (void)drop(crew, NULL);
  for (int64_t g = crew->group_count - 1; g >= 0; --g) {
    bppsa_comm_destroy(crew->groups[g]);
  }
  if (crew->arrays != crew->world) {
    bppsa_comm_destroy(crew->arrays);
  }
  if (crew->gpus > 0) {
    bppsa_comm_set_device(crew->world, NULL);
  }
  for (int i = 0; crew->subjects != NULL && i < BPPSA_RANKS_NETWORKS; ++i) {
    bppsa_network_close(&crew->subjects[i].network);
  }
  bppsa_free(crew->subjects);
  bppsa_free(crew->parts);
  *crew = (bppsa_ranks_crew){0};
}
