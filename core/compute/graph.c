#include "core/compute/graph.h"

bppsa_status bppsa_graph_capture(const bppsa_device *device, bppsa_queued_work work, void *context, bppsa_graph **graph) {
  BPPSA_TRY(bppsa_graph_begin(device));
  const bppsa_status status = work(context);
  if (status != BPPSA_OK) {
    (void)bppsa_graph_end(device, NULL); /* the first failure is reported */
    return bppsa_fail_prefix(status, "recording");
  }
  return bppsa_graph_end(device, graph);
}
