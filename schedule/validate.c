/* The validator: checks the rules that a schedule keeps. This file has the rules of shape, rules.c the table of all others.
 *
 * Every rule is one walk over operations and dependencies. The walks of the other rules skip operations that break a rule of
 * shape.
 */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/decimal.h"
#include "schedule/check.h"

bool bppsa_checker_broken(bppsa_checker *c, int64_t op, const char *format, ...) {
  char what[BPPSA_SCHEDULE_OP_TEXT + 24] = "";
  char name[BPPSA_SCHEDULE_OP_TEXT];
  va_list arguments;
  if (op >= 0) {
    snprintf(what, sizeof what, "operation %" PRId64 ", %s: ", op, bppsa_schedule_op_text(c->list, op, name, sizeof name));
  }
  c->finding->op = op;
  const size_t used = (size_t)snprintf(c->finding->text, sizeof c->finding->text, "%s", what);
  va_start(arguments, format);
  bppsa_vprint(c->finding->text + used, sizeof c->finding->text - used, format, arguments);
  va_end(arguments);
  return false;
}

/* ---- shapes: rules about one operation alone ---- */

static bool in(int64_t value, int64_t from, int64_t to) {
  return value >= from && value < to;
}

static bool is_pass(const bppsa_schedule_op *op) {
  return op->kind <= BPPSA_KIND_RECOMPUTE;
}

static bool good_lane(const bppsa_schedule_op *op) {
  switch ((bppsa_schedule_kind)op->kind) {
  case BPPSA_KIND_SEND:
    return op->lane == BPPSA_LANE_SEND;
  case BPPSA_KIND_RECV:
    return op->lane == BPPSA_LANE_RECEIVE;
  case BPPSA_KIND_SYNC:
    return op->lane == BPPSA_LANE_SYNC || op->lane == BPPSA_LANE_COMPUTE;
  case BPPSA_KIND_W:
    return op->lane == BPPSA_LANE_GRADIENT || op->lane == BPPSA_LANE_COMPUTE;
  default:
    return op->lane == BPPSA_LANE_COMPUTE;
  }
}

static bool shape_kind(const bppsa_checker *c, const bppsa_schedule_op *op) {
  const bool scan = op->kind >= BPPSA_KIND_PRODUCT;
  const bool neither = op->kind == BPPSA_KIND_SEND || op->kind == BPPSA_KIND_RECV;
  return op->kind < BPPSA_KIND_COUNT && (neither || scan == c->list->scheme->scan);
}

static bool shape_worker(const bppsa_checker *c, const bppsa_schedule_op *op) {
  return in(op->worker, 0, c->list->workers);
}

static bool shape_lane(const bppsa_checker *c, const bppsa_schedule_op *op) {
  (void)c;
  return good_lane(op);
}

static bool shape_replica(const bppsa_checker *c, const bppsa_schedule_op *op) {
  return in(op->replica, 0, c->list->replicas);
}

static bool shape_layers(const bppsa_checker *c, const bppsa_schedule_op *op) {
  const int64_t all = c->list->scheme->scan ? c->list->config.elements - 1 : c->list->config.layers;
  return op->layers >= 1 && op->layer >= 0 && op->layers <= all - op->layer;
}

static bool shape_stage(const bppsa_checker *c, const bppsa_schedule_op *op) {
  if (c->list->scheme->scan) {
    return in(op->stage, 0, c->list->workers);
  }
  return in(op->stage, 0, c->list->stages) && op->layer >= bppsa_schedule_layer_of(c->list, op->stage) &&
         (int64_t)op->layer + op->layers <= bppsa_schedule_layer_of(c->list, op->stage + 1);
}

static bool shape_micro(const bppsa_checker *c, const bppsa_schedule_op *op) {
  if (c->list->scheme->scan) {
    return op->micro == 0 && op->micros >= 0;
  }
  if (op->kind == BPPSA_KIND_SYNC || op->kind == BPPSA_KIND_STEP) {
    return op->micro == -1 && op->micros == 0;
  }
  return op->micro >= 0 && op->micros >= 1 && op->micros <= c->list->micros - op->micro;
}

static bool shape_part(const bppsa_checker *c, const bppsa_schedule_op *op) {
  const bool backward = is_pass(op) && op->kind != BPPSA_KIND_F;
  const bool transfer = op->kind == BPPSA_KIND_SEND || op->kind == BPPSA_KIND_RECV;
  if (c->list->scheme->scan || op->kind == BPPSA_KIND_SYNC) {
    return op->part >= -1;
  }
  return op->part == -1 || ((backward || transfer) && in(op->part, 0, 2) && c->list->config.scale == BPPSA_SCALE_HALVING);
}

static bool shape_cost(const bppsa_checker *c, const bppsa_schedule_op *op) {
  (void)c;
  return isfinite(op->cost) && op->cost >= 0;
}

static bool shape_memory(const bppsa_checker *c, const bppsa_schedule_op *op) {
  (void)c;
  return isfinite(op->memory_delta) && in(op->weight_delta, -1, 2);
}

static bool shape_dependencies(const bppsa_checker *c, const bppsa_schedule_op *op) {
  if (op->dep_count < 0 || op->deps < 0 || op->deps + op->dep_count > c->list->dep_count) {
    return false;
  }
  for (int32_t k = 0; k < op->dep_count; ++k) {
    const int32_t dep = c->list->deps[op->deps + k];
    if (!in(dep, 0, c->list->count) || dep == op - c->list->ops) {
      return false;
    }
  }
  return true;
}

static bool shape_group(const bppsa_checker *c, const bppsa_schedule_op *op) {
  const bool together = op->kind == BPPSA_KIND_SEND || op->kind == BPPSA_KIND_RECV || op->kind == BPPSA_KIND_SYNC;
  return together ? in(op->group, 0, c->list->groups) : op->group == -1;
}

/* The shape rules, in the order in which they are checked: a rule may rely on the rules in front of it. */
static const struct {
  bppsa_schedule_rule rule;
  bool (*kept)(const bppsa_checker *c, const bppsa_schedule_op *op);
} shapes[] = {
    {{"kind", "every operation is of a kind that the scheme has"}, shape_kind},
    {{"worker", "every operation is on one of the workers"}, shape_worker},
    {{"lane", "every operation is in a lane of its kind"}, shape_lane},
    {{"replica", "every operation is of one of the replicas"}, shape_replica},
    {{"layers", "the layers of an operation exist in the model"}, shape_layers},
    {{"stage", "the stage of an operation holds its layers"}, shape_stage},
    {{"micro-batch", "the micro-batches of an operation exist in the run"}, shape_micro},
    {{"half", "only halving has halves of backward passes"}, shape_part},
    {{"cost", "every cost is finite, 0 or more"}, shape_cost},
    {{"delta", "every change of memory is finite"}, shape_memory},
    {{"group", "operations that begin together have a group, others have none"}, shape_group},
    {{"dependency", "dependencies are on other operations of the list"}, shape_dependencies},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };
_Static_assert(sizeof shapes / sizeof shapes[0] <= BPPSA_CHECKER_MOST_RULES, "a bit of a mask each, beside the other rules");

const bppsa_schedule_rule *bppsa_schedule_rule_at(int64_t index) {
  if (index < 0 || index >= SHAPES + bppsa_checker_rule_count) {
    return NULL;
  }
  return index < SHAPES ? &shapes[index].rule : &bppsa_checker_rules[index - SHAPES].rule;
}

/* ---- all rules ---- */

/* Finds the first shape rule of the mask that an operation breaks. Operations that break any are left out of the later rules. */
static bool check_shapes(bppsa_checker *c, uint64_t mask) {
  bool good = true;
  for (int64_t id = 0; id < c->list->count; ++id) {
    const bppsa_schedule_op *op = &c->list->ops[id];
    c->sane[id] = true;
    for (int rule = 0; rule < SHAPES; ++rule) {
      if (!shapes[rule].kept(c, op)) {
        c->sane[id] = false;
        c->all_sane = false;
        if (good && (mask >> rule & 1) != 0) {
          good = bppsa_checker_broken(c, id, "expected %s", shapes[rule].rule.what);
          c->finding->rule = shapes[rule].rule.name;
        }
        break; /* the following rules may rely on it */
      }
    }
  }
  return good;
}

static bppsa_status check(bppsa_checker *c, uint64_t mask) {
  if (!check_shapes(c, mask)) {
    return BPPSA_OK;
  }
  BPPSA_TRY(bppsa_checker_prepare(c));
  for (int rule = 0; rule < bppsa_checker_rule_count; ++rule) {
    if ((mask >> (SHAPES + rule) & 1) == 0) {
      continue;
    }
    c->finding->rule = bppsa_checker_rules[rule].rule.name;
    bool kept = true;
    BPPSA_TRY(bppsa_checker_rules[rule].walk(c, &kept));
    if (!kept) {
      return BPPSA_OK;
    }
    c->finding->rule = NULL;
  }
  return BPPSA_OK;
}

bppsa_status bppsa_schedule_check(const bppsa_schedule *schedule, uint64_t mask, bppsa_schedule_finding *finding) {
  BPPSA_REQUIRE(schedule != NULL && finding != NULL);
  bppsa_schedule_finding found = {.rule = NULL, .op = -1};
  bppsa_checker c = {.list = schedule, .finding = &found, .all_sane = true};
  c.sane = bppsa_calloc(schedule->count, sizeof *c.sane);
  const bppsa_status status = c.sane != NULL ? check(&c, mask) : BPPSA_ERR_MEMORY;
  bppsa_checker_free(&c);
  bppsa_free(c.sane);
  if (status == BPPSA_OK) {
    *finding = found;
  }
  return status;
}

bppsa_status bppsa_schedule_validate(const bppsa_schedule *schedule) {
  BPPSA_REQUIRE(schedule != NULL);
  bppsa_schedule_finding finding;
  BPPSA_TRY(bppsa_schedule_check(schedule, BPPSA_SCHEDULE_ALL_RULES, &finding));
  return finding.rule == NULL ? BPPSA_OK : bppsa_fail(BPPSA_ERR_ARGUMENT, "rule %s: %s", finding.rule, finding.text);
}
