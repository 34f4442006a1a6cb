/* Without CUDA there are no recordings: every device computes at once. */
#include "core/compute/graph.h"

static bppsa_status without(const bppsa_device *device, const char *what) {
  return bppsa_fail(BPPSA_ERR_UNSUPPORTED, "%s: device %s has no queue of work, expected a GPU", what,
                    bppsa_device_get_name(device));
}

bppsa_status bppsa_graph_begin(const bppsa_device *device) {
  return without(device, "recording");
}

bppsa_status bppsa_graph_end(const bppsa_device *device, bppsa_graph **graph) {
  (void)graph;
  return without(device, "recording");
}

int64_t bppsa_graph_nodes(const bppsa_graph *graph) {
  (void)graph;
  return 0;
}

bppsa_status bppsa_graph_launch(const bppsa_device *device, const bppsa_graph *graph) {
  (void)graph;
  return without(device, "replay");
}

void bppsa_graph_destroy(const bppsa_device *device, bppsa_graph *graph) {
  (void)device, (void)graph;
}

bppsa_status bppsa_mark_create(const bppsa_device *device, bppsa_mark **mark) {
  (void)mark;
  return without(device, "mark");
}

void bppsa_mark_destroy(const bppsa_device *device, bppsa_mark *mark) {
  (void)device, (void)mark;
}

bppsa_status bppsa_mark_set(const bppsa_device *device, bppsa_mark *mark) {
  (void)mark;
  return without(device, "mark");
}

bppsa_status bppsa_mark_seconds(const bppsa_device *device, const bppsa_mark *first, const bppsa_mark *second, double *seconds) {
  (void)first, (void)second, (void)seconds;
  return without(device, "mark");
}

bppsa_status bppsa_fence_create(const bppsa_device *device, bppsa_fence **fence) {
  (void)fence;
  return without(device, "fence");
}

void bppsa_fence_destroy(const bppsa_device *device, bppsa_fence *fence) {
  (void)device, (void)fence;
}

bppsa_status bppsa_fence_set(const bppsa_device *device, bppsa_fence *fence) {
  (void)fence;
  return without(device, "fence");
}

bppsa_status bppsa_fence_follow(const bppsa_device *device, bppsa_fence *fence) {
  (void)fence;
  return without(device, "fence");
}

bppsa_status bppsa_fence_reached(const bppsa_device *device, bppsa_fence *fence, bool *reached) {
  (void)fence, (void)reached;
  return without(device, "fence");
}
