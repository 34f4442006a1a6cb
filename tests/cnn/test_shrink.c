/* What is left of networks without the channels that masks make useless, by hand. */
#include "cnn/shrink.h"
#include "tests/cnn/graphs.h"

#define CONV(name, out, kernel, groups, inputs)                                                                                  \
  "{\"name\": \"" name "\", \"op\": \"conv2d\", \"out\": " out ", \"kernel\": " kernel ", \"padding\": [0, 0, 0, 0], "           \
  "\"groups\": " groups ", \"inputs\": [" inputs "]}, "
#define LAYER(name, op, inputs) "{\"name\": \"" name "\", \"op\": \"" op "\", \"inputs\": [" inputs "]}, "

enum { MOST = 16, WEIGHTS = 512 };

typedef struct {
  bppsa_cnn_network network;
  uint8_t bytes[MOST][WEIGHTS];
  const uint8_t *masks[MOST];
} masked;

static void make(const char *layers, masked *m) {
  char text[2048];
  snprintf(text, sizeof text, "{\"input\": [3, 2, 2], \"layers\": [%s]}", layers);
  if (bppsa_cnn_network_parse("net", text, (int64_t)strlen(text), &m->network) != BPPSA_OK) {
    fail_msg("%s", bppsa_last_error());
  }
  assert_in_range(m->network.count, 1, MOST);
  for (int64_t i = 0; i < m->network.count; ++i) {
    assert_in_range(bppsa_op_weights(&m->network.layers[i].op), 0, WEIGHTS);
    memset(m->bytes[i], 1, WEIGHTS);
    m->masks[i] = m->bytes[i];
  }
}

/* Prunes `count` adjacent weights of a layer. */
static void prune(masked *m, int64_t layer, int64_t first, int64_t count) {
  memset(m->bytes[layer] + first, 0, (size_t)count);
}

static void check(const masked *m, const int64_t expected[][2], const double *shares) {
  bppsa_cnn_shrunk shrunk[MOST];
  assert_int_equal(bppsa_cnn_shrink(&m->network, m->masks, shrunk), BPPSA_OK);
  for (int64_t i = 0; i < m->network.count; ++i) {
    if (shrunk[i].in != expected[i][0] || shrunk[i].out != expected[i][1] || fabs(shrunk[i].share - shares[i]) > 1e-15) {
      fail_msg("layer %s: %d to %d channels, share %g, expected %d to %d, %g", m->network.layers[i].name, (int)shrunk[i].in,
               (int)shrunk[i].out, shrunk[i].share, (int)expected[i][0], (int)expected[i][1], shares[i]);
    }
  }
}

/* A filter that is gone takes its channel with it, also where the next layer has kept weights; a channel that nothing reads takes
 * its filter. A depthwise convolution passes both on. */
static void test_chain(void **state) {
  (void)state;
  masked m;
  make(CONV("c1", "4", "1", "1", "\"input\"") LAYER("n", "batchnorm2d", "\"c1\"") LAYER("r", "relu", "\"n\"")
           CONV("d", "4", "1", "4", "\"r\"") CONV("c2", "5", "1", "1", "\"d\"")
               LAYER("f", "flatten", "\"c2\"") "{\"name\": \"fc\", \"op\": \"linear\", \"out\": 2}",
       &m);
  const double whole[] = {1, 1, 1, 1, 1, 1, 1};
  check(&m, (const int64_t[][2]){{3, 4}, {4, 4}, {4, 4}, {4, 4}, {4, 5}, {5, 20}, {20, 2}}, whole);
  prune(&m, 0, 3, 3); /* c1's filter 1 */
  for (int o = 0; o < 5; ++o) {
    prune(&m, 4, 4 * o + 2, 1); /* c2 does not read d's channel 2 */
  }
  prune(&m, 6, 3 * 4, 4);      /* fc reads nothing of c2's channel 3, */
  prune(&m, 6, 20 + 3 * 4, 4); /* nor for the other logit, */
  prune(&m, 6, 0, 1);          /* and one value of channel 0 less: its others stay */
  for (int o = 0; o < 4; ++o) {
    prune(&m, 0, 3 * o, 1); /* c1 does not read the input's channel 0 */
  }
  check(&m, (const int64_t[][2]){{2, 2}, {2, 2}, {2, 2}, {2, 2}, {2, 4}, {4, 16}, {16, 2}},
        (const double[]){2 * 2 / 12.0, 0.5, 0.5, 0.5, 2 * 4 / 20.0, 0.8, 0.8});
  bppsa_cnn_network_free(&m.network);
}

/* Channels of an add stay as long as one of its inputs is given, those of a concat go one by one; a softmax over channels keeps
 * all, and so does a factor that is repeated over them. */
static void test_graph(void **state) {
  (void)state;
  masked m;
  make(CONV("a", "2", "1", "1", "\"input\"") CONV("b", "2", "1", "1", "\"input\"") LAYER("sum", "add", "\"a\", \"b\"")
           LAYER("cat", "concat", "\"sum\", \"a\"") CONV("g", "1", "1", "1", "\"input\"")
               LAYER("mul", "mul", "\"cat\", \"g\"") "{\"name\": \"fc\", \"op\": \"linear\", \"out\": 2}",
       &m);
  prune(&m, 0, 0, 3); /* a's filter 0: sum's channel 0 is b's; a's own channel 0 is tied to it */
  prune(&m, 1, 3, 3); /* b's filter 1: sum's channel 1 is a's */
  check(&m, (const int64_t[][2]){{3, 2}, {3, 2}, {2, 2}, {2, 4}, {3, 1}, {4, 4}, {4, 2}}, (const double[]){1, 1, 1, 1, 1, 1, 1});
  prune(&m, 1, 0, 3); /* b's filter 0 too */
  check(&m, (const int64_t[][2]){{3, 1}, {3, 1}, {1, 1}, {1, 2}, {3, 1}, {2, 2}, {2, 2}},
        (const double[]){0.5, 0.5, 0.5, 0.5, 1, 0.5, 0.5});
  bppsa_cnn_network_free(&m.network);
  make(CONV("a", "4", "1", "1", "\"input\"") "{\"name\": \"s\", \"op\": \"softmax\", \"axis\": 0}, "
                                             "{\"name\": \"n\", \"op\": \"groupnorm\", \"groups\": 4}, {\"name\": \"p\", \"op\": "
                                             "\"permute\", \"order\": [0, 2, 1]}, "
                                             "{\"name\": \"fc\", \"op\": \"linear\", \"out\": 2}",
       &m);
  prune(&m, 0, 0, 3); /* softmax needs all channels, */
  prune(&m, 6, 0, 4); /* but fc reads neither channel 0 of what a norm makes of each */
  prune(&m, 6, 16, 4);
  check(&m, (const int64_t[][2]){{3, 4}, {4, 2}, {4, 3}, {3, 2}, {3, 3}, {3, 3}, {3, 2}},
        (const double[]){1, 1, 0.75, 0.75, 0.75, 0.75, 0.75});
  bppsa_cnn_network_free(&m.network);
}

/* A block beside its own input: nothing gives a channel of both, although they would give it each other. */
static void test_circle(void **state) {
  (void)state;
  masked m;
  make(CONV("a", "2", "1", "1", "\"input\"") CONV("d", "2", "1", "2", "\"a\"")
           LAYER("sum", "add", "\"a\", \"d\"") "{\"name\": \"fc\", \"op\": \"linear\", \"out\": 2}",
       &m);
  prune(&m, 0, 0, 3);
  check(&m, (const int64_t[][2]){{3, 1}, {1, 1}, {1, 1}, {1, 2}}, (const double[]){0.5, 0.5, 0.5, 0.5});
  prune(&m, 3, 0, 16); /* nothing is left but the logits */
  check(&m, (const int64_t[][2]){{0, 0}, {0, 0}, {0, 0}, {0, 2}}, (const double[]){0, 0, 0, 0});
  bppsa_cnn_network_free(&m.network);
}

static bppsa_status shrink_once(void *argument) {
  const masked *m = argument;
  bppsa_cnn_shrunk shrunk[MOST];
  return bppsa_cnn_shrink(&m->network, NULL, shrunk);
}

static void test_memory(void **state) {
  (void)state;
  masked m;
  make(CONV("a", "2", "1", "1", "\"input\"") "{\"name\": \"fc\", \"op\": \"linear\", \"out\": 2}", &m);
  assert_int_equal(walk_allocations(shrink_once, &m), 5);
  bppsa_cnn_network_free(&m.network);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_chain), cmocka_unit_test(test_graph), cmocka_unit_test(test_circle),
                                     cmocka_unit_test(test_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
