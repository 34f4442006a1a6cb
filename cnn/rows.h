/* Rows of a network's transposed Jacobians over live sets (cnn/live.h), and of products of them, without any matrix. Internal.
 *
 * Row r of J_sᵀ ⋯ J_tᵀ is a walk: it begins as a single one at place r of x_{s-1}, and each layer carries it on to the
 * places of the next live set. A set of places is kept as bits, 64 channels in a word, so that a convolution carries a place on by
 * one OR for each tap and each word of the weights that a mask keeps. Entries and ones are told apart as in jacobian/csr.h: what
 * comes from an entry, or through an entry of a layer, is an entry; a place that two walks of nothing but ones reach is one too.
 */
#ifndef BPPSA_CNN_ROWS_H
#define BPPSA_CNN_ROWS_H

#include "cnn/live.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a layer does to a value that it reads. */
typedef enum {
  BPPSA_ROWS_SAME = 0, /* a one at the same position: add, concat, slice, identities */
  BPPSA_ROWS_MOVED,    /* a one somewhere else: flatten, reshape, permute */
  BPPSA_ROWS_POINT,    /* an entry of the same channel and position: activations, batch norms, factors */
  BPPSA_ROWS_WINDOWS,  /* entries of the same channel: pools, factors that mul repeats over positions */
  BPPSA_ROWS_WEIGHTS, /* entries of the weights that are kept: convolutions; a linear operator is one whose kernel is its input */
  BPPSA_ROWS_BLOCK    /* entries of the blocks of cnn/blocks.h: norms, softmax, factors that mul repeats over channels */
} bppsa_rows_kind;

/* Which outputs each position of an axis reaches, and by which tap. */
typedef struct {
  int64_t *ptr;          /* first item of each position, size extent + 1 */
  int32_t *output, *tap; /* size ptr[extent] */
} bppsa_rows_axis;

/* Layer `layer` reads a tensor as its input number `input`. */
typedef struct {
  bppsa_rows_kind kind;
  int64_t layer, input;
  int64_t first, count, shift; /* same: channels first .. first + count - 1 become channels first + shift .. */
  int64_t strides[3];          /* moved: how far apart adjacent values of the input are in the output */
  bppsa_rows_axis axes[2];     /* windows, weights */
  /* weights */
  int64_t taps_across; /* taps along the width */
  int64_t in_group, out_group, in_channels;
  int64_t words;  /* words of a row of `kept` */
  uint64_t *kept; /* bits of the output channels: [tap][input channel][words], from the word of the group's first channel on;
                   * NULL: all weights are kept */
} bppsa_rows_reader;

typedef struct {
  const bppsa_cnn_network *network; /* borrowed; bppsa_cnn_rows_free does not read it */
  bppsa_cnn_live live;
  /* for each place of live.tensors: words of a position, first word, first position, and where the tensor is in the next live set
   * (-1: it is not in it) */
  int64_t *words, *word_base, *position_base, *stays;
  int64_t *reader_ptr; /* the readers that layer i is, size layers + 1 */
  int64_t reader_count;
  bppsa_rows_reader *readers;
  int64_t set_words, set_positions; /* of the largest set */
  int64_t largest;                  /* of x_0 .. x_n, which one that is */
  int32_t *columns;                 /* of a row of a block */
  int32_t *channels;                /* of a position */
  int64_t bytes;                    /* of all of this */
  double work;                      /* words that were read or written since somebody set it to 0 */
} bppsa_cnn_rows;

/* A position of a tensor: the tensor's place in live.tensors, and the position h · W + w. */
typedef struct {
  int32_t place, position;
} bppsa_rows_spot;

/* A set of places of one live set. */
typedef struct {
  uint64_t *entries, *once, *twice; /* twice: while a set is made, what several ones reach */
  bool *touched;
  bppsa_rows_spot *spots; /* the positions that have bits */
  int64_t count;
} bppsa_rows_set;

/* masks[i]: a byte for each weight of layer i, 0 where it is left out; NULL: all are kept. The network is borrowed, the masks are
 * read here alone. limit: bytes that this may take, 0: any number. ERR_ARGUMENT: more bytes (the message says how many);
 * ERR_MEMORY; errors of bppsa_cnn_live_create. */
bppsa_status bppsa_cnn_rows_create(const bppsa_cnn_network *network, const uint8_t *const *masks, bool input, int64_t limit,
                                   bppsa_cnn_rows *rows);
void bppsa_cnn_rows_free(bppsa_cnn_rows *rows); /* a zeroed one is legal */

int64_t bppsa_rows_set_bytes(const bppsa_cnn_rows *rows);
bppsa_status bppsa_rows_set_create(const bppsa_cnn_rows *rows, bppsa_rows_set *set); /* empty. ERR_MEMORY */
void bppsa_rows_set_free(bppsa_rows_set *set);
void bppsa_rows_set_clear(const bppsa_cnn_rows *rows, bppsa_rows_set *set);

/* The first word of a position in a set's arrays. */
static inline int64_t bppsa_rows_word(const bppsa_cnn_rows *rows, bppsa_rows_spot spot) {
  return rows->word_base[spot.place] + spot.position * rows->words[spot.place];
}

/* Makes an empty set the single one at a channel of a position. */
void bppsa_rows_begin(const bppsa_cnn_rows *rows, bppsa_rows_spot spot, int64_t channel, bppsa_rows_set *set);
/* Carries a set of x_{t-1} on to x_t, which must be empty, and empties it. */
void bppsa_rows_step(bppsa_cnn_rows *rows, int64_t t, bppsa_rows_set *from, bppsa_rows_set *to);
/* How many entries, and how many ones, a set has. */
int64_t bppsa_rows_entries(const bppsa_cnn_rows *rows, const bppsa_rows_set *set, int64_t *ones);

/* ---- classes of rows (row_classes.c) ---- */

/* Positions of an axis from which every walk goes alike: rows of J_fromᵀ ⋯ J_toᵀ at two positions of a class have as many
 * entries, and so has every product along the way. */
typedef struct {
  int64_t extent, count;
  int32_t *of;     /* of each position, size extent */
  int32_t *member; /* a position of each class, size count */
  int32_t *times;  /* its number of positions */
} bppsa_rows_classes;

/* axis 0: height, 1: width; of the tensor at `place` of x_{from-1}. ERR_MEMORY. */
bppsa_status bppsa_rows_classes_create(const bppsa_cnn_rows *rows, int64_t from, int64_t to, int64_t place, int axis,
                                       bppsa_rows_classes *classes);
void bppsa_rows_classes_free(bppsa_rows_classes *classes); /* a zeroed one is legal */

/* The shape of the tensor at a place. */
const int64_t *bppsa_rows_shape(const bppsa_cnn_rows *rows, int64_t place);
/* The index of layer i's output among the tensors of the live set behind layer i; -1 if no later layer reads the output. */
static inline int64_t bppsa_rows_output(const bppsa_cnn_rows *rows, int64_t i) {
  const int64_t place = rows->live.ptr[i + 2] - 1; /* the newest tensor is the last */
  return place >= rows->live.ptr[i + 1] && rows->live.tensors[place] == i + 1 ? place : -1;
}

#ifdef __cplusplus
}
#endif
#endif
