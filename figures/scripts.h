/* The gnuplot scripts of the figures: `gnuplot -c NAME.gp svg|png` in the directory of NAME.csv. */
#ifndef BPPSA_FIGURES_SCRIPTS_H
#define BPPSA_FIGURES_SCRIPTS_H

extern const char bppsa_script_lstm_sensitivity[], bppsa_script_lstm_loss[], bppsa_script_figure6[], bppsa_script_figure7[],
    bppsa_script_figure8[], bppsa_script_figure9[], bppsa_script_figure10[], bppsa_script_figure13[], bppsa_script_bubble_ratio[],
    bppsa_script_schedule_memory[], bppsa_script_ranks_time[], bppsa_script_ranks_batch[], bppsa_script_forward_path[],
    bppsa_script_forward_steps[], bppsa_script_step_path[], bppsa_script_step_parts[], bppsa_script_prediction[],
    bppsa_script_staleness[], bppsa_script_adam[], bppsa_script_paradl_figure3[], bppsa_script_paradl_figure5[],
    bppsa_script_paradl_figure7[], bppsa_script_out_of_order[];

#endif
