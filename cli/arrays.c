/* Arrays given as NPY files. */
#include <inttypes.h>
#include <math.h>

#include "cli/setup.h"
#include "core/npy.h"

bppsa_status bppsa_setup_reals(const char *path, bppsa_dtype dtype, bppsa_buffer *array) {
  bppsa_buffer loaded = {0}, converted = {0};
  BPPSA_TRY(bppsa_cli_input(bppsa_npy_load(path, &loaded)));
  bppsa_status status = BPPSA_OK;
  if (loaded.view.dtype != BPPSA_F32 && loaded.view.dtype != BPPSA_F64) {
    status = bppsa_fail(BPPSA_ERR_FORMAT, "%s: dtype %s, expected f32 or f64", path, bppsa_dtype_name(loaded.view.dtype));
  }
  if (status == BPPSA_OK) {
    status = bppsa_buffer_create(NULL, dtype, loaded.view.ndim, loaded.view.shape, &converted);
  }
  if (status == BPPSA_OK) {
    status = bppsa_view_convert(&loaded.view, &converted.view);
  }
  const int64_t count = status == BPPSA_OK ? bppsa_view_count(&converted.view) : 0;
  for (int64_t i = 0; status == BPPSA_OK && i < count; ++i) {
    if (!isfinite(bppsa_view_get(&converted.view, i))) {
      char position[BPPSA_SHAPE_TEXT];
      status = bppsa_fail(BPPSA_ERR_FORMAT, "%s: element %" PRId64 " is not finite in %s, expected finite values: %g at %s", path,
                          i, bppsa_dtype_name(dtype), bppsa_view_get(&loaded.view, i),
                          bppsa_index_text(&loaded.view, i, position, sizeof position));
    }
  }
  bppsa_buffer_free(&loaded);
  if (status != BPPSA_OK) {
    bppsa_buffer_free(&converted);
    return status;
  }
  *array = converted;
  return BPPSA_OK;
}

bppsa_status bppsa_setup_shape(const char *path, const bppsa_view *view, const char *words, int32_t ndim, const int64_t *shape) {
  bool same = view->ndim == ndim;
  for (int32_t d = 0; same && d < ndim; ++d) {
    same = view->shape[d] == shape[d];
  }
  char found[BPPSA_SHAPE_TEXT], expected[BPPSA_SHAPE_TEXT], guess[BPPSA_SHAPE_TEXT] = "";
  if (!same && view->ndim == ndim) {
    bppsa_shape_guess(words, ndim, view->shape, shape, guess, sizeof guess);
  }
  return same ? BPPSA_OK
              : bppsa_fail(BPPSA_ERR_SHAPE, "%s: shape %s, expected %s = %s%s", path,
                           bppsa_shape_text(view->ndim, view->shape, found, sizeof found), words,
                           bppsa_shape_text(ndim, shape, expected, sizeof expected), guess);
}
