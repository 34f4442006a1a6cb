/* What callers of networks and layers need to know of a cell: its table's address (recurrent/cell.h has the table itself), and the
 * function that it applies. */
#ifndef BPPSA_RECURRENT_CELLS_H
#define BPPSA_RECURRENT_CELLS_H

typedef enum { BPPSA_NONLINEARITY_TANH = 0, BPPSA_NONLINEARITY_RELU } bppsa_nonlinearity; /* ReLU: where the table says so */

typedef struct bppsa_cell bppsa_cell; /* a cell: the library's are constants, such as bppsa_gru_cell */

#endif
