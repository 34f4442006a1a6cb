#include "jacobian/network_ops.h"

#include <stdio.h>
#include <string.h>

/* A layer: kind, output channels, kernel, padding. A ReLU follows every layer except pools. */
typedef struct {
  bppsa_operator kind;
  int64_t channels, kernel, padding;
} layer;

#define CONV(channels, kernel, padding)                                                                                          \
  { BPPSA_OPERATOR_CONV2D, channels, kernel, padding }
#define POOL                                                                                                                     \
  { BPPSA_OPERATOR_MAXPOOL2D, 0, 2, 0 }
#define FULL(channels)                                                                                                           \
  { BPPSA_OPERATOR_LINEAR, channels, 0, 0 }
#define END                                                                                                                      \
  { BPPSA_OPERATOR_COUNT, 0, 0, 0 }

static const layer vgg11[] = {CONV(64, 3, 1),
                              POOL,
                              CONV(128, 3, 1),
                              POOL,
                              CONV(256, 3, 1),
                              CONV(256, 3, 1),
                              POOL,
                              CONV(512, 3, 1),
                              CONV(512, 3, 1),
                              POOL,
                              CONV(512, 3, 1),
                              CONV(512, 3, 1),
                              POOL,
                              END};
static const layer lenet5[] = {CONV(6, 5, 0), POOL, CONV(16, 5, 0), POOL, FULL(120), FULL(84), END};

static const struct {
  const char *name;
  int64_t in[3];
  const layer *layers;
} networks[] = {{"vgg11", {3, 32, 32}, vgg11}, {"lenet5", {3, 32, 32}, lenet5}};

static bppsa_op make_op(const layer *l, const int64_t in[3]) {
  bppsa_op op = bppsa_op_default(l->kind);
  const int64_t stride = l->kind == BPPSA_OPERATOR_MAXPOOL2D ? l->kernel : 1;
  memcpy(op.in, in, sizeof op.in);
  op.out_channels = l->channels;
  for (int i = 0; i < 4; ++i) {
    op.padding[i] = l->padding;
    op.kernel[i % 2] = l->kernel;
    op.stride[i % 2] = stride;
  }
  return op;
}

/* Appends an operator under a numbered name, such as relu3. */
static void add(const char *word, int64_t *number, const bppsa_op *op, bppsa_named_op *ops, int64_t *count) {
  bppsa_named_op *to = &ops[(*count)++];
  to->op = *op;
  snprintf(to->name, sizeof to->name, "%s%lld", word, (long long)++*number);
}

bppsa_status bppsa_network_table(const char *name, bppsa_named_op *ops, int64_t *count) {
  BPPSA_REQUIRE(name != NULL && ops != NULL && count != NULL);
  for (size_t i = 0; i < sizeof networks / sizeof networks[0]; ++i) {
    if (strcmp(networks[i].name, name) != 0) {
      continue;
    }
    int64_t shape[3] = {networks[i].in[0], networks[i].in[1], networks[i].in[2]}, made = 0;
    int64_t convs = 0, pools = 0, fulls = 0, relus = 0;
    for (const layer *l = networks[i].layers; l->kind != BPPSA_OPERATOR_COUNT; ++l) {
      const bppsa_op op = make_op(l, shape);
      BPPSA_TRY(bppsa_op_shape(&op, shape));
      if (l->kind == BPPSA_OPERATOR_MAXPOOL2D) {
        add("pool", &pools, &op, ops, &made);
        continue;
      }
      const bool conv = l->kind == BPPSA_OPERATOR_CONV2D;
      add(conv ? "conv" : "fc", conv ? &convs : &fulls, &op, ops, &made);
      bppsa_op relu = bppsa_op_default(BPPSA_OPERATOR_RELU);
      memcpy(relu.in, shape, sizeof shape);
      add("relu", &relus, &relu, ops, &made);
    }
    *count = made;
    return BPPSA_OK;
  }
  return bppsa_fail(BPPSA_ERR_ARGUMENT, "network '%s' is unknown, expected vgg11 or lenet5", name);
}
