/* Figure 5: transposed Jacobians of VGG-11's operators. Figure 10: the cost of the steps of its pruned scan. */
#include <inttypes.h>
#include <string.h>

#include "figures/figure_data.h"
#include "runs/flops.h"
#include "runs/jacobian_matrix.h"
#include "terminal/machine.h"

/* ---- figure 5 ---- */

enum { OPERATORS = 3 };
static const struct {
  const char *suffix; /* suffix of the files' names */
  int layer;          /* layer of VGG-11 */
} operators[OPERATORS] = {{"_conv1", 0}, {"_relu1", 1}, {"_pool1", 2}};

bppsa_status bppsa_make_figure5(bppsa_figures *f, const bppsa_figure *figure, bppsa_figure_content *made) {
  (void)f;
  for (int i = 0; i < OPERATORS; ++i) {
    bppsa_text_add(&made->html, "<img src=\"%s%s.png\" alt=\"%s%s\" width=\"300\">\n", figure->name, operators[i].suffix,
                   figure->name, operators[i].suffix);
  }
  return BPPSA_OK;
}

/* Writes the matrix to NAME.npz and its picture to NAME.png. */
static bppsa_status write_matrix(bppsa_figures *f, const char *name, const bppsa_op *op) {
  static const char *const suffixes[] = {".npz", ".png"};
  const bppsa_jacobian_request request = {.op = *op, .dtype = BPPSA_F32, .memory = bppsa_machine_memory()};
  bppsa_jacobian_matrix matrix = {0};
  char paths[2][BPPSA_FIGURES_PATH];
  for (int i = 0; i < 2; ++i) {
    BPPSA_TRY(bppsa_figures_path(f, name, suffixes[i], paths[i]));
  }
  BPPSA_TRY(bppsa_jacobian_matrix_create(&request, f->request->device, &matrix));
  const bppsa_status status = bppsa_jacobian_picture(&matrix, paths[0], paths[1]);
  bppsa_jacobian_matrix_free(&matrix);
  BPPSA_TRY(status);
  BPPSA_TRY(bppsa_figures_list(f, name, suffixes[1]));
  return bppsa_figures_list(f, name, suffixes[0]);
}

bppsa_status bppsa_write_figure5(bppsa_figures *f, const bppsa_figure *figure) {
  bppsa_cnn_network vgg = {0};
  BPPSA_TRY(bppsa_cnn_network_builtin("vgg11", &vgg));
  bppsa_status status = BPPSA_OK;
  for (int i = 0; status == BPPSA_OK && i < OPERATORS; ++i) {
    char name[64];
    snprintf(name, sizeof name, "%s%s", figure->name, operators[i].suffix);
    status = write_matrix(f, name, &vgg.layers[operators[i].layer].op);
  }
  bppsa_cnn_network_free(&vgg);
  return status;
}

/* ---- figure 10 ---- */

enum { PATTERNS = 2 };
static const char *const patterns[PATTERNS] = {"value", "guaranteed"};

/* Adds the scan's steps for one kind of pattern, and BP's products with the operators of the unpruned network. */
static void add_steps(const bppsa_flops *counted, const bppsa_flops *unpruned, const char *pattern, bppsa_text *csv) {
  for (int64_t i = 0; i < counted->step_count; ++i) {
    const bppsa_scan_step *s = &counted->steps[i];
    char left[BPPSA_OPERAND_TEXT], right[BPPSA_OPERAND_TEXT], out[BPPSA_OPERAND_TEXT];
    if (s->level->dead) {
      continue;
    }
    bppsa_scan_step_text(counted->plan, s, left, right, out);
    bppsa_text_add(csv, "%s,%s,%s", pattern, bppsa_scan_phase_name(s->level->phase),
                   s->copy ? "copy" : bppsa_scan_op_name(s->level->op));
    bppsa_text_add_cells(csv, 2, (double[]){(double)s->m * (double)s->k * (double)s->n, (double)s->flops});
    bppsa_text_add(csv, ",%d,%s\n", s->critical, out);
  }
  for (int64_t i = 0; i < unpruned->count; ++i) {
    const bppsa_flops_operator *o = &unpruned->operators[i];
    bppsa_text_add(csv, "%s,bp,bp", pattern);
    bppsa_text_add_cells(csv, 2, (double[]){(double)o->rows * (double)o->cols, (double)o->bp_flops});
    bppsa_text_add(csv, ",0,%s\n", unpruned->names[i]);
  }
}

static void add_conclusions(const bppsa_figures *f, const bppsa_flops counted[PATTERNS], bppsa_text *caption) {
  char conclusion[BPPSA_FLOPS_CONCLUSION], dominant[BPPSA_FLOPS_DOMINANT];
  bppsa_text_add(caption,
                 "VGG-11 with 3 %% of its weights (class-uniform, PyTorch's initialisation, seed %" PRIu64 "), two up-levels. ",
                 f->request->seed);
  for (int i = 0; i < PATTERNS; ++i) {
    bppsa_text_add(caption, "%s", i == 0 ? "By values: " : "Guaranteed: ");
    bppsa_text_add_escaped(caption, bppsa_flops_conclusion(&counted[i], conclusion, sizeof conclusion));
    bppsa_text_add(caption, ". ");
  }
  bppsa_text_add(caption, "The dominating steps: ");
  for (int i = 0; i < PATTERNS; ++i) {
    bppsa_text_add_escaped(caption, bppsa_flops_dominant(&counted[i], dominant, sizeof dominant));
    bppsa_text_add(caption, "%s", i == 0 ? "; " : ".");
  }
}

bppsa_status bppsa_make_figure10(bppsa_figures *f, const bppsa_figure *figure, bppsa_figure_content *made) {
  bppsa_flops_request request = bppsa_flops_request_default();
  bppsa_flops unpruned = {0}, counted[PATTERNS] = {{.count = 0}, {.count = 0}};
  (void)figure;
  request.network = "vgg11";
  request.scan = (bppsa_scan_method){.algorithm = BPPSA_SCAN_BLELLOCH, .up_levels = 2};
  request.assumed_limit = bppsa_machine_memory() / 4 * 3;
  bppsa_text_add(&made->csv, "pattern,phase,op,mkn,flops,critical,result\n");
  bppsa_status status = bppsa_flops_count(&request, &unpruned);
  request.prune = 0.97;
  request.seed = f->request->seed;
  for (int i = 0; status == BPPSA_OK && i < PATTERNS; ++i) {
    request.values = strcmp(patterns[i], "value") == 0;
    status = bppsa_flops_count(&request, &counted[i]);
    if (status == BPPSA_OK) {
      add_steps(&counted[i], &unpruned, patterns[i], &made->csv);
    }
  }
  if (status == BPPSA_OK) {
    add_conclusions(f, counted, &made->caption);
  }
  bppsa_flops_free(&unpruned);
  for (int i = 0; i < PATTERNS; ++i) {
    bppsa_flops_free(&counted[i]);
  }
  return status;
}
