/* The table of figures. A row has the figure's page, the name of its files, its data function with its source, the script that
 * draws the data, a title and a caption. To add a figure, add a row here and a data function (figures/figure_data.h). */
#include "figures/figure_data.h"
#include "figures/forward_figures.h"
#include "figures/oracle_figures.h"
#include "figures/out_of_order_figures.h"
#include "figures/ranks_figures.h"
#include "figures/scripts.h"
#include "figures/staleness_figures.h"

/* ---- pages ---- */

enum { RNN = 0, SCHEDULES, ORACLE, GRU, LSTM, RANKS, FORWARD, STALENESS, OUT_OF_ORDER, NETWORKS, PAGES };

const int bppsa_figure_page_count = PAGES;
const bppsa_figure_page bppsa_figure_pages[] = {
    [RNN] = {.run = "rnn",
             .file = "index.html",
             .kept = "results.json",
             .list = "rows",
             .title = "tables and figures",
             .heading = "Back-propagation as a parallel scan: tables 4 and 5, figures 1, 3, 7 and 8",
             .end = "<h2>Schedules</h2>\n<p><a href=\"schedules.html\">Timelines of pipelines, data parallelism and "
                    "scans</a></p>\n<p><a href=\"oracle.html\">The oracle: parallel strategies, projected</a></p>\n"},
    [SCHEDULES] = {.run = "rnn",
                   .file = "schedules.html",
                   .title = "schedules",
                   .heading = "Schedules: the papers' timelines, computed",
                   .intro = "<p class=\"note\">Nothing here is measured: every picture and number comes from validated lists of "
                            "operations, as bppsa schedule makes them. F = I = W = 1 unless a title says otherwise.</p>\n",
                   .end = ""},
    [ORACLE] = {.run = "rnn",
                .file = "oracle.html",
                .title = "the oracle",
                .heading = "The oracle: parallel strategies on ParaDL's cluster",
                .intro =
                    "<p class=\"note\">Nothing here is measured: every number is a projection, as bppsa oracle makes it for the "
                    "paper's cluster of V100s, whose start-up times and efficiency are assumptions (docs/oracle.md). Published "
                    "numbers are read from the paper's text; it prints those of its figures nowhere.</p>\n",
                .end = ""},
    [GRU] = {.run = "gru",
             .file = "index.html",
             .kept = "results.json",
             .list = "rows",
             .title = "tables and figures",
             .heading = "Back-propagation as a parallel scan: the GRU's tables 3 and 6, figures 9 and 13",
             .end = ""},
    [LSTM] = {.run = "lstm",
              .file = "index.html",
              .kept = "results.json",
              .list = "rows",
              .title = "tables and figures",
              .heading = "Back-propagation as a parallel scan: the LSTM over the shapes of tables 4 and 5",
              .end = ""},
    [RANKS] = {.run = BPPSA_FIGURES_RANKS,
               .file = "index.html",
               .kept = "results.json",
               .list = "rows",
               .title = "ranks",
               .heading = "Many ranks: time and memory of a rank",
               .intro =
                   "<p class=\"note\">From the rows of bench ranks, which results.json holds: one forward and one backward pass "
                   "of a batch, by the slowest rank; docs/ranks.md derives the model. Rings are noisy rows.</p>\n",
               .end = ""},
    [FORWARD] = {.run = BPPSA_FIGURES_FORWARD,
                 .file = "index.html",
                 .kept = "results.json",
                 .list = "rows",
                 .title = "forward passes",
                 .heading = "Forward passes in parallel over time",
                 .intro = "<p class=\"note\">From the rows of bench forward, and of the training and the backward passes that "
                          "bench/scripts/forward.py adds; results.json holds them, docs/forward.md explains them.</p>\n",
                 .end = ""},
    [STALENESS] = {.run = BPPSA_FIGURES_STALENESS,
                   .file = "index.html",
                   .kept = "results.json",
                   .list = "rows",
                   .title = "old and predicted weights",
                   .heading = "Pipelines without a flush: old weights, and predicted ones",
                   .intro = "<p class=\"note\">From the rows of bench/scripts/spectrain.py, which results.json holds; "
                            "docs/schedules.md says what was trained. Updates are equally many, of equally many samples, for "
                            "every scheme.</p>\n",
                   .end = ""},
    [OUT_OF_ORDER] =
        {.run = BPPSA_FIGURES_OUT_OF_ORDER,
         .file = "index.html",
         .kept = "results.json",
         .list = "rows",
         .title = "out of order",
         .heading = "Weight gradients out of order, on processors",
         .intro = "<p class=\"note\">From the rows of bench/scripts/out_of_order.py, which results.json holds. A rank does "
                  "one thing at a time here: the ratios are what an order costs, not what it wins where streams and "
                  "networks work side by side.</p>\n",
         .end = ""},
    [NETWORKS] = {.run = "cnn",
                  .file = "networks.html",
                  .kept = "networks.json",
                  .list = "parts",
                  .title = "convolutional networks",
                  .heading = "Convolutional networks: table 1, figures 5, 6 and 10",
                  .intro = "",
                  .end = ""},
};

/* ---- figures ---- */

/* Figure 4 of the ooo-backprop paper gives no costs of SYNC; these costs agree with its ratios and its boxes (18, 17, 15). */
static const double figure4_sync[] = {3, 1, 1, 2, 4};

/* A row of a timeline. The last eight arguments initialise its bppsa_timeline_source. */
#define TIMELINE(name_, title_, scheme_, ...)                                                                                    \
  {                                                                                                                              \
    .page = SCHEDULES, .name = (name_), .data = bppsa_make_timeline, .of = &(const bppsa_timeline_source){scheme_, __VA_ARGS__}, \
    .title = (title_)                                                                                                            \
  }

const bppsa_figure bppsa_figure_table[] = {
    {.page = RNN,
     .name = "table4",
     .data = bppsa_make_epochs,
     .of = &(const bppsa_epochs_source){4, true},
     .title = "Table 4: seconds per epoch of 32 000 samples, by sequence length"},
    {.page = RNN,
     .name = "table5",
     .data = bppsa_make_epochs,
     .of = &(const bppsa_epochs_source){5, true},
     .title = "Table 5: seconds per epoch of 32 000 samples, by batch size",
     .caption =
         "H = 20, default initialisation, unless the results say otherwise. The paper's columns are whole epochs of "
         "training on a V100 (BP is PyTorch with cuDNN 7). The columns measured here are one forward pass, and one forward "
         "and one backward pass, times the iterations of an epoch; head, loss, update and data are left out. "
         "<i>linear</i> is BP under another name, <i>auto</i> the planner's choice. A dash was not measured."},
    {.page = RNN,
     .name = "growth",
     .data = bppsa_make_growth,
     .title = "Growth with T at B = 16",
     .caption =
         "Least squares over the logarithms of T from 100 on, medians, noisy points left out: an exponent of 1 is linear "
         "growth. The critical path is counted in the plans: for linear it doubles with T, for Blelloch a doubling adds two "
         "products."},
    {.page = RNN,
     .name = "figure1",
     .data = bppsa_make_plan,
     .of = &(const bppsa_plan_source){.jacobians = 7},
     .title = "Figure 1: back-propagation through 7 layers as a Blelloch scan",
     .caption = "Seven transposed Jacobians and the last layer's gradient, as in the paper's figure 1. A product stands in the "
                "column of its last element, its gradient is the one of that prefix. Products whose result would be overwritten "
                "are dead and never run."},
    {.page = RNN,
     .name = "figure3",
     .data = bppsa_make_plan,
     .of = &(const bppsa_plan_source){.network = "vgg11"},
     .title = "Figure 3: the scan of VGG-11's 21 operators",
     .caption = "The plan of VGG-11 on 3 x 32 x 32, 22 elements, as many as in the paper's figure 3; FLOPs are those of its "
                "sparse patterns, for one sample. Red is the product each level waits for: 7 in a row where BP has 20. Levels of "
                "the paper's algorithm that only move data are kept as empty rows."},
    {.page = RNN,
     .name = "figure7",
     .data = bppsa_make_training,
     .of = "The paper (RTX 2070, 80 epochs, Adam 1e-5): 2.73 overall.",
     .script = bppsa_script_figure7,
     .title = "Figure 7: training loss over wall-clock time",
     .kept = true},
    {.page = RNN,
     .name = "figure8",
     .data = bppsa_make_figure8,
     .of = &(const bool){true},
     .script = bppsa_script_figure8,
     .title = "Figure 8: sensitivity to T and B",
     .caption =
         "One forward and one backward pass, medians, default initialisation, H = 20. The grey curve is the paper's V100 "
         "from tables 4 and 5. Its BP is cuDNN 7; the BP here is this program's own sequential sweep on this machine. Rings "
         "are noisy points."},
    {.page = SCHEDULES,
     .name = "chimera_table2",
     .data = bppsa_make_table2,
     .title = "Chimera, table 2, computed: D = 8, N = 8",
     .caption = "One iteration from an empty pipeline to an empty one: PipeDream's and 2BW's bubbles are those of filling and "
                "draining it, and vanish as N grows."},
    {.page = SCHEDULES,
     .name = "bubble_ratio",
     .data = bppsa_make_bubbles,
     .script = bppsa_script_bubble_ratio,
     .title = "Bubble ratio against N and D",
     .caption = "F = I = W = 1; chimera beyond N = D by direct concatenation."},
    {.page = SCHEDULES,
     .name = "schedule_memory",
     .data = bppsa_make_memory,
     .script = bppsa_script_schedule_memory,
     .title = "Memory of a device against the number of devices (BPPSA, section 3.6)",
     .caption = "A model of 4096 layers. A pipeline kept full by as many micro-batches as devices, with recomputation, holds n/p "
                "+ p activations; the scan's workers hold n/p Jacobians and one product. A Jacobian is larger than an "
                "activation: the curves differ in growth, not in bytes."},
    TIMELINE("ooo_4a", "ooo-backprop, figure 4(a): conventional data parallelism (SYNC costs are ours)", "wait-free", 1, 1, 5, 1,
             0, BPPSA_SPLIT_IW, 0, 1, figure4_sync),
    TIMELINE("ooo_4b", "Figure 4(b): prioritised communication", "priority", 1, 1, 5, 1, 0, BPPSA_SPLIT_IW, 0, 1, figure4_sync),
    TIMELINE("ooo_4c", "Figure 4(c): reverse first-k", "reverse-first-k", 1, 1, 5, 1, 0, BPPSA_SPLIT_IW, 0, 1, figure4_sync),
    TIMELINE("ooo_5a", "ooo-backprop, figure 5(a): model parallelism, 23 units", "model-parallel", 2, 1, 8, 1, 0, BPPSA_SPLIT_WI,
             0, 1, NULL),
    TIMELINE("ooo_5b", "Figure 5(b): gradient fast-forwarding, 19 units", "fast-forward", 2, 1, 8, 1, 0, BPPSA_SPLIT_IW, 0, 1,
             NULL),
    TIMELINE("ooo_5c", "Figure 5(c): modulo allocation, 16 units", "modulo", 2, 1, 8, 1, 0, BPPSA_SPLIT_IW, 0, 1, NULL),
    TIMELINE("ooo_13a", "ooo-backprop, figure 13(a): GPipe, 16 layers as in its text, 83 units", "gpipe", 4, 4, 16, 1, 0,
             BPPSA_SPLIT_WI, 0, 1, NULL),
    TIMELINE("ooo_13b", "Figure 13(b): gradient fast-forwarding, 68 units", "fast-forward", 4, 4, 16, 1, 0, BPPSA_SPLIT_IW, 0, 1,
             NULL),
    TIMELINE("ooo_13c", "Figure 13(c): modulo allocation, 51 units", "modulo", 4, 4, 16, 1, 0, BPPSA_SPLIT_IW, 0, 1, NULL),
    TIMELINE("chimera_2_pipedream", "Chimera, figure 2: PipeDream", "pipedream", 4, 4, 0, 1, 0, 0, 0, 1, NULL),
    TIMELINE("chimera_2_2bw", "Figure 2: PipeDream-2BW", "2bw", 4, 4, 0, 1, 0, 0, 0, 1, NULL),
    TIMELINE("chimera_2_gpipe", "Figure 2: GPipe", "gpipe", 4, 4, 0, 1, 0, 0, 0, 1, NULL),
    TIMELINE("chimera_2_gems", "Figure 2: GEMS", "gems", 4, 4, 0, 1, 0, 0, 0, 1, NULL),
    TIMELINE("chimera_2_dapple", "Figure 2: DAPPLE", "1f1b", 4, 4, 0, 1, 0, 0, 0, 1, NULL),
    TIMELINE("chimera_3", "Figures 2 and 3: Chimera's two pipelines, equal passes", "chimera", 4, 4, 0, 1, 2, 0, 0, 0.5, NULL),
    TIMELINE("chimera_5", "Figure 5: with data parallelism, W = 2", "chimera", 4, 4, 0, 2, 2, 0, 0, 1, NULL),
    TIMELINE("chimera_7b", "Figure 7(b): direct concatenation", "chimera", 4, 8, 0, 1, 2, 0, BPPSA_SCALE_DIRECT, 1, NULL),
    TIMELINE("chimera_7d", "Figure 7(d): forward doubling", "chimera", 4, 8, 0, 1, 2, 0, BPPSA_SCALE_DOUBLING, 1, NULL),
    TIMELINE("chimera_7h", "Section 3.5: backward halving", "chimera", 4, 8, 0, 1, 2, 0, BPPSA_SCALE_HALVING, 1, NULL),
    TIMELINE("chimera_8", "Figure 8: four pipelines of eight stages, equal passes", "chimera", 8, 8, 0, 1, 4, 0, 0, 0.5, NULL),
    TIMELINE("spectrain_6", "SpecTrain, figure 6: pipelined model parallelism, equal passes", "vanilla", 3, 8, 0, 1, 0, 0, 0, 0.5,
             NULL),
    TIMELINE("spectrain_7a", "Figure 7(a): a single GPU", "vanilla", 1, 8, 0, 1, 0, 0, 0, 0.5, NULL),
    TIMELINE("spectrain_7c", "Figure 7(c): PipeDream's stashed weights", "pipedream", 3, 8, 0, 1, 0, 0, 0, 0.5, NULL),
    TIMELINE("spectrain_7d", "Figure 7(d): SpecTrain's predicted weights (versions in the tooltips)", "spectrain", 3, 8, 0, 1, 0,
             0, 0, 0.5, NULL),
    {.page = ORACLE,
     .name = "oracle_vgg16",
     .data = bppsa_make_oracle,
     .of = &(const bppsa_oracle_figure){"vgg16", 4, 1024, 1024},
     .title = "VGG-16 on 4 to 1024 V100s, mini-batches of 1024 samples",
     .caption =
         "An epoch. Filter and channel parallelism end at 64 processors, as the paper's text says: the narrowest layer has 64 "
         "filters. Data+filter beats data at scale."},
    {.page = ORACLE,
     .name = "oracle_resnet50",
     .data = bppsa_make_oracle,
     .of = &(const bppsa_oracle_figure){"resnet50", 4, 1024, 1024},
     .title = "ResNet-50 on 4 to 1024 V100s, mini-batches of 1024 samples"},
    {.page = ORACLE,
     .name = "oracle_cosmoflow512",
     .data = bppsa_make_oracle,
     .of = &(const bppsa_oracle_figure){"cosmoflow512", 4, 64, 16},
     .title = "CosmoFlow at 512&sup3; on 4 to 64 V100s, mini-batches of 16 samples",
     .caption = "Data parallelism needs more memory than a processor has; data+spatial fits."},
    {.page = ORACLE,
     .name = "paradl_figure3",
     .data = bppsa_make_oracle_curves,
     .of =
         &(const bppsa_oracle_curves){.value = BPPSA_ORACLE_HALO,
                                      .first = 16,
                                      .last = 1024,
                                      .curves = {{.name = "ResNet-50",
                                                  .model = "resnet50",
                                                  .strategy = "data+spatial",
                                                  .batch = 32,
                                                  .says = "the text: ResNet-50 on 128 GPUs",
                                                  .published = 0.6,
                                                  .published_at = 128},
                                                 {.name = "VGG-16", .model = "vgg16", .strategy = "data+spatial", .batch = 32}}},
     .script = bppsa_script_paradl_figure3,
     .title = "ParaDL, figure 3, section 5.3.1: the halo exchange of data+spatial over its gradient exchange",
     .caption =
         "Projected with 32 samples a processor. The text: about 60 % for ResNet-50 on 128 GPUs, whose halos travelled by MPI "
         "through the hosts, gradients by NCCL; the projection has one link for both."},
    {.page = ORACLE,
     .name = "paradl_figure5",
     .data = bppsa_make_oracle_curves,
     .of = &(const bppsa_oracle_curves){.value = BPPSA_ORACLE_EPOCH,
                                        .first = 4,
                                        .last = 1024,
                                        .curves = {{.name = "CosmoFlow at 512^3",
                                                    .model = "cosmoflow512",
                                                    .strategy = "data+spatial",
                                                    .samples_of_node = 1,
                                                    .says = "the text: perfect scaling",
                                                    .perfect = true},
                                                   {.name = "CosmoFlow at 256^3",
                                                    .model = "cosmoflow256",
                                                    .strategy = "data+spatial",
                                                    .samples_of_node = 1}}},
     .script = bppsa_script_paradl_figure5,
     .title = "ParaDL, figure 5: CosmoFlow by data+spatial, one sample a node of four",
     .caption = "The text calls the curve of 512&sup3; perfect scaling: half of the time on twice the processors."},
    {.page = ORACLE,
     .name = "paradl_figure7",
     .data = bppsa_make_oracle_curves,
     .of = &(const bppsa_oracle_curves){.value = BPPSA_ORACLE_UPDATE,
                                        .over_batch = true,
                                        .first = 1,
                                        .last = 64,
                                        .curves = {{.name = "VGG-16",
                                                    .model = "vgg16",
                                                    .strategy = "serial",
                                                    .says = "the text: up to 15 % for VGG-16",
                                                    .published = 0.15},
                                                   {.name = "ResNet-50", .model = "resnet50", .strategy = "serial"},
                                                   {.name = "ResNet-152", .model = "resnet152", .strategy = "serial"}}},
     .script = bppsa_script_paradl_figure7,
     .title = "ParaDL, figure 7, section 5.3.3: the weight update's share of computing",
     .caption =
         "Projected for one V100 by mini-batch: an update is made once a mini-batch, so its share falls with the samples. The "
         "text gives no mini-batch."},
    {.page = GRU,
     .name = "table3",
     .data = bppsa_make_table3,
     .title = "Table 3: the features of IRMAS's sets",
     .caption = "Three seconds of two channels at 44.1 kHz; the first coefficient is left out."},
    {.page = GRU,
     .name = "table6",
     .data = bppsa_make_table6,
     .title = "Table 6: a GRU over IRMAS's sets",
     .caption =
         "H = 20, default initialisation; S is T 259 with 38 features, M 517 with 24, L 1034 with 12, here noise of "
         "variance 1. The paper's BP is PyTorch with cuDNN 7; its forward pass has an overhead because cuDNN hides the gates. "
         "The forward pass here keeps them, for BP and for the scan alike: it has no such overhead. Columns of methods are "
         "backward passes."},
    {.page = GRU,
     .name = "figure9",
     .data = bppsa_make_figure9,
     .script = bppsa_script_figure9,
     .title = "Figure 9: runtime of an iteration over that of forward and BP",
     .caption = "Left bars: the paper's V100, its forward pass, the overhead of the Jacobians, and BPPSA's backward pass. Right "
                "bars: forward and the fastest parallel scan, measured here, medians. A bar below 1 is a gain over BP on "
                "the same machine. A ring above a bar: noisy."},
    {.page = GRU,
     .name = "figure13",
     .data = bppsa_make_training,
     .of = "The paper (RTX cards, 400 epochs of IRMAS at B = 16): up to 2.36 overall, over all sets and batches.",
     .script = bppsa_script_figure13,
     .title = "Figure 13: training loss over wall-clock time",
     .kept = true,
     .without_data = "<p>Not made: it needs a data set, <code>--data instruments:DIR</code> or <code>irmas:DIR</code>.</p>\n"},
    {.page = LSTM,
     .name = "lstm_lengths",
     .data = bppsa_make_epochs,
     .of = &(const bppsa_epochs_source){4, false},
     .title = "Seconds per epoch of 32 000 samples, by sequence length"},
    {.page = LSTM,
     .name = "lstm_batches",
     .data = bppsa_make_epochs,
     .of = &(const bppsa_epochs_source){5, false},
     .title = "Seconds per epoch of 32 000 samples, by batch size",
     .caption = "H = 20, default initialisation, unless the results say otherwise: one forward pass, and one forward and one "
                "backward pass, times the iterations of an epoch; head, loss, update and data are left out. <i>linear</i> is BP "
                "under another name, <i>auto</i> the planner's choice. A dash was not measured. The papers have no LSTM."},
    {.page = LSTM,
     .name = "lstm_growth",
     .data = bppsa_make_growth,
     .title = "Growth with T at B = 16",
     .caption = "Least squares over the logarithms of T from 100 on, medians, noisy points left out: an exponent of 1 is linear "
                "growth. The critical path is counted in the plans."},
    {.page = LSTM,
     .name = "lstm_sensitivity",
     .data = bppsa_make_figure8,
     .of = &(const bool){false},
     .script = bppsa_script_lstm_sensitivity,
     .title = "Sensitivity to T and B",
     .caption = "One forward and one backward pass, medians, default initialisation, H = 20. A state is a pair (h, c): a scan's "
                "products are 2H &times; 2H. Rings are noisy points."},
    {.page = LSTM,
     .name = "lstm_loss",
     .data = bppsa_make_training,
     .of = "",
     .script = bppsa_script_lstm_loss,
     .title = "Training loss over wall-clock time",
     .kept = true},
    {.page = RANKS,
     .name = "ranks_time",
     .data = bppsa_make_ranks,
     .of = "time",
     .script = bppsa_script_ranks_time,
     .title = "Ranks along time: time and memory of a rank (BPPSA, section 3.6)",
     .caption =
         "Left: medians, and dashed what the model predicts. Right: bytes of the rank that holds most, inputs included. "
         "Dotted: as section 3.6 says that it grows, from the fewest ranks above one: max(n/p, 1) for a scan, n/p + p for a "
         "pipeline. One rank by itself runs a local scan, which holds more products."},
    {.page = RANKS,
     .name = "ranks_batch",
     .data = bppsa_make_ranks,
     .of = "batch",
     .script = bppsa_script_ranks_batch,
     .title = "Data parallelism: time of a batch",
     .caption = "Medians, and dashed what the model predicts. A message for every parameter."},
    {.page = FORWARD,
     .name = "forward_path",
     .data = bppsa_make_forward_path,
     .script = bppsa_script_forward_path,
     .title = "The path on the way through training",
     .caption = "Dependent steps of a speculative forward pass on the weights of a training run, over those of the sequential "
                "pass: of the slowest sample of a batch, in as many chunks as a GPU takes. A curve is a network, the seed of its "
                "training and T."},
    {.page = FORWARD,
     .name = "forward_steps",
     .data = bppsa_make_forward_steps,
     .script = bppsa_script_forward_steps,
     .title = "The time of a step, forward and backward",
     .caption = "Medians over the step with a sequential forward pass; B = 1, H = 20, default initialisation; backward is the "
                "fastest method. Without rows of backward passes the bars are forward passes. Rings: noisy."},
    {.page = STALENESS,
     .name = "prediction",
     .data = bppsa_make_prediction,
     .script = bppsa_script_prediction,
     .title = "Predicted and stale weights against the weights that come (SpecTrain, figure 8)",
     .caption = "Root mean square over all weights, means of windows of updates. Stale: the weights of s updates ago; predicted: "
                "what was then predicted from the smoothed gradient. One device trains; a network is a column, an optimiser a "
                "row."},
    {.page = STALENESS,
     .name = "prediction_table",
     .data = bppsa_make_prediction_table,
     .title = "The same over the whole run",
     .caption = "Means of the root mean squares over all updates. A ratio below 1: the prediction is nearer on average."},
    {.page = STALENESS,
     .name = "staleness_table",
     .data = bppsa_make_staleness_table,
     .of = "accuracy",
     .title = "Losses and accuracy of four schemes (SpecTrain, table 1)",
     .caption =
         "Mean and standard deviation over runs from different seeds; the best epoch of each run, as in the paper's table. "
         "Differences within the deviations say nothing."},
    {.page = STALENESS,
     .name = "staleness",
     .data = bppsa_make_staleness,
     .of = "accuracy",
     .script = bppsa_script_staleness,
     .title = "Validation accuracy and loss over epochs",
     .caption = "Curves are means over the seeds, bars their range."},
    {.page = STALENESS,
     .name = "adam_table",
     .data = bppsa_make_staleness_table,
     .of = "adam",
     .title = "Adam on one device and in PipeDream (BPPSA, appendix C)",
     .caption = "Mean and standard deviation over runs from different seeds; the best epoch of each run. The paper: VGG-16 on "
                "ImageNet, 2.6 points of top-1 accuracy less with PipeDream."},
    {.page = STALENESS,
     .name = "adam",
     .data = bppsa_make_staleness,
     .of = "adam",
     .script = bppsa_script_adam,
     .title = "Validation accuracy and loss over epochs with Adam (BPPSA, figure 12)",
     .caption = "Curves are means over the seeds, bars their range. The learning rate falls by ten after each third."},
    {.page = OUT_OF_ORDER,
     .name = "out_of_order",
     .data = bppsa_make_out_of_order,
     .script = bppsa_script_out_of_order,
     .title = "Multi-stream and reverse first-k, measured (ooo-backprop, Algorithms 1 and 2)",
     .caption =
         "A step of LeNet-5. Of each group the left bar is the step in order. Bars whose lines overlap are not told apart."},
    {.page = OUT_OF_ORDER,
     .name = "out_of_order_table",
     .data = bppsa_make_out_of_order_table,
     .title = "The same in numbers",
     .caption =
         "The ways of a group train to the same bits, or the table says so. The last column compares ranges over the rounds, "
         "not medians."},
    {.page = NETWORKS, .name = "table1", .data = bppsa_make_table1, .title = "Table 1: making transposed Jacobians"},
    {.page = NETWORKS,
     .name = "figure5",
     .data = bppsa_make_figure5,
     .write = bppsa_write_figure5,
     .title = "Figure 5: patterns of VGG-11's first operators",
     .caption = "Yellow: not 0; cyan: possibly 0; purple: guaranteed zeros."},
    {.page = NETWORKS,
     .name = "figure6",
     .data = bppsa_make_figure6,
     .script = bppsa_script_figure6,
     .title = "Figure 6: convergence of LeNet-5"},
    {.page = NETWORKS,
     .name = "figure10",
     .data = bppsa_make_figure10,
     .script = bppsa_script_figure10,
     .title = "Figure 10: FLOPs of every step of a pruned VGG-11"},
};
const int bppsa_figure_count = sizeof bppsa_figure_table / sizeof bppsa_figure_table[0];
