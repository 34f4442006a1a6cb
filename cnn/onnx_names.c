/* The names of layers from an ONNX model. */
#include <stdio.h>
#include <string.h>

#include "cnn/onnx_internal.h"

enum { ROOM = BPPSA_CNN_NAME - 7 }; /* leaves room for .sums, or for _4095 */

/* Replaces what a name must not have. */
static void clean(char *name) {
  static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
  for (; *name != '\0'; ++name) {
    *name = strchr(letters, *name) != NULL ? *name : '_';
  }
}

/* Copies the end of a text of `length` bytes that has room. */
static void copy_end(const char *text, size_t length, size_t most, char *name) {
  const size_t cut = length > most ? length - most : 0;
  memcpy(name, text + cut, length - cut);
  name[length - cut] = '\0';
}

static bool is_path(const char *name) {
  return name[0] == '/' && strchr(name + 1, '/') != NULL;
}

/* "layer1.0.conv1" from "/layer1/layer1.0/conv1/Conv": a module's part of the path that repeats the part before, and a dot, stands
 * for both. */
static void name_of_path(const char *path, char *name) {
  char whole[512];
  size_t used = 0, before = 0; /* where the part before begins */
  for (const char *part = path + 1, *end; (end = strchr(part, '/')) != NULL; part = end + 1) {
    const size_t length = (size_t)(end - part), old = used - before;
    const bool repeats = old > 0 && length > old && memcmp(part, whole + before, old) == 0 && part[old] == '.';
    if (used + length + 2 > sizeof whole) {
      break;
    }
    if (repeats) {
      used = before;
    } else if (used > 0) {
      whole[used++] = '.';
    }
    before = used;
    memcpy(whole + used, part, length);
    used += length;
  }
  copy_end(whole, used, ROOM, name);
}

/* Is it "NAME.weight"? Then *length is NAME's. */
static bool is_weight(const char *name, size_t *length) {
  static const char ending[] = ".weight";
  const size_t all = name != NULL ? strlen(name) : 0, end = sizeof ending - 1;
  *length = all > end ? all - end : 0;
  return *length > 0 && strcmp(name + *length, ending) == 0;
}

bppsa_status bppsa_onnx_name(onnx_reader *r, const char *weight, bppsa_cnn_layer *layer) {
  const char *node = r->node->name != NULL ? r->node->name : "";
  char name[BPPSA_CNN_NAME];
  size_t length;
  if (is_path(node)) { /* it comes first, because exporters share equal initializers among modules */
    name_of_path(node, name);
  } else if (is_weight(weight, &length)) {
    copy_end(weight, length, BPPSA_CNN_NAME - 1, name);
  } else {
    copy_end(node, strlen(node), ROOM, name);
  }
  if (name[0] == '\0') {
    snprintf(name, sizeof name, "%s", bppsa_cnn_layer_word(layer));
  }
  clean(name);
  snprintf(layer->name, sizeof layer->name, "%s", name);
  for (int again = 1; json_object_get(r->layer_names, layer->name) != NULL || strcmp(layer->name, "input") == 0; ++again) {
    snprintf(layer->name, sizeof layer->name, "%.*s_%d", (int)ROOM, name, again % 10000); /* there are 4096 layers at most */
  }
  memcpy(layer->prefix, layer->name, sizeof layer->prefix);
  return json_object_set_new(r->layer_names, layer->name, json_true()) == 0 ? BPPSA_OK : BPPSA_ERR_MEMORY;
}
