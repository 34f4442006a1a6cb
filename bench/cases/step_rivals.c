/* The rivals of `bench step`: the methods of --rivals; and cuDNN, by name. */
#include "bench/cases/bench_step.h"
#include "core/base/alloc.h"
#include "core/compute/device_buffer.h"

typedef bppsa_step_session session;
typedef bppsa_step_entry entry;

/* The unit of a guest's residuals. On a GPU the guest may call cuDNN with any algorithm. */
static double unit_of(const session *s) {
  return bppsa_cudnn_rounding(s->bench->gpu ? BPPSA_CUDNN_PERSIST_STATIC : BPPSA_CUDNN_STANDARD, s->config.dtype);
}

static bppsa_status verify_guest(void *context, double *residual) {
  entry *e = context;
  const session *s = e->s;
  const int64_t count = s->holder->parameter_count;
  const size_t bytes = 2 * (size_t)s->reals * bppsa_dtype_size(s->config.dtype);
  char *received = bppsa_alloc(bytes), *next = received;
  bppsa_view *views = bppsa_calloc(2 * count, sizeof *views);
  bppsa_status status = received == NULL || views == NULL ? BPPSA_ERR_MEMORY : BPPSA_OK;
  status = status == BPPSA_OK ? bppsa_guest_enter(s->guest, e->guest, (int64_t)bytes, received) : status;
  for (int64_t i = 0; status == BPPSA_OK && i < 2 * count; ++i) {
    views[i] = s->holder->parameters[i % count].value;
    views[i].data = next;
    next += bppsa_view_bytes(&views[i]);
  }
  if (status == BPPSA_OK) {
    *residual = bppsa_step_judge(s, views, views + count, unit_of(s));
    e->error = bppsa_step_error(s, views);
  }
  bppsa_free(views);
  bppsa_free(received);
  return status;
}

static bppsa_status pass_of_guest(void *context, double seconds[BPPSA_TIMING_PARTS]) {
  const entry *e = context;
  return bppsa_guest_pass(e->s->guest, e->guest, 1, seconds);
}

/* Sends the point, with the labels as numbers of the network's type. */
static bppsa_status send_point(session *s) {
  const bppsa_recurrent_config *c = &s->config;
  const int64_t all[] = {c->seq_len, c->batch};
  bppsa_buffer labels = {0};
  BPPSA_TRY(bppsa_buffer_create(NULL, c->dtype, c->loss_all ? 2 : 1, c->loss_all ? all : all + 1, &labels));
  for (int64_t i = 0; i < bppsa_view_count(&labels.view); ++i) {
    bppsa_view_set(&labels.view, i, (double)s->labels[i]);
  }
  const bppsa_guest_point point = {.model = s->bench->asked->point.kind->name,
                                   .config = c,
                                   .parameter_count = s->holder->parameter_count,
                                   .parameters = s->holder->parameters,
                                   .x = s->x.view,
                                   .seed = labels.view,
                                   .step_lr = bppsa_optimizer_config_default().lr};
  const bppsa_status status = bppsa_guest_send_point(s->guest, &point);
  bppsa_buffer_free(&labels);
  return status;
}

/* Enters a method unless it has lost at a shorter T. refused: leaves it out, for the reason of the last error. */
static bppsa_status enter_guest(session *s, int method, bool refused) {
  entry *e = &s->guests[method];
  *e = (entry){.s = s, .guest = bppsa_guest_method(s->guest, method)};
  const bppsa_rival_outlook known = bppsa_outlook_of(s->outlook, e->guest, NULL);
  if (refused || (s->bench->qualify > 0 && bppsa_outlook_check(&known) != BPPSA_OK)) {
    return bppsa_bench_leave_out(s->bench, e->guest, "");
  }
  const bppsa_contender contender = {.verification = {.verify = verify_guest, .context = e},
                                     .pass = pass_of_guest,
                                     .context = e,
                                     .parts = 1,
                                     .qualifies = BPPSA_QUALIFIES};
  return bppsa_bench_enter_contender(s->bench, &contender, e, e->guest, "", NULL);
}

/* Names cuDNN as left out: it has no loss and no update. PyTorch's layers call it. */
static bppsa_status name_cudnn(const session *s) {
  (void)bppsa_fail(BPPSA_ERR_UNSUPPORTED,
                   "it makes no whole step; --rivals bench/rivals/recurrent.py has PyTorch's, which calls it");
  return bppsa_bench_leave_out(s->bench, "cudnn", "");
}

bppsa_status bppsa_step_enter_rivals(session *s) {
  BPPSA_TRY(s->bench->gpu ? name_cudnn(s) : BPPSA_OK);
  if (s->guest == NULL) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_outlook_create(s->bench->earlier, s->bench->report.rows, &s->config, &s->outlook));
  const bppsa_status status = send_point(s);
  BPPSA_TRY(status == BPPSA_ERR_UNSUPPORTED ? BPPSA_OK : status);
  for (int m = 0; m < bppsa_guest_method_count(s->guest); ++m) {
    if (bppsa_step_takes_part(s, bppsa_guest_method(s->guest, m))) {
      BPPSA_TRY(enter_guest(s, m, status != BPPSA_OK));
    }
  }
  return BPPSA_OK;
}
