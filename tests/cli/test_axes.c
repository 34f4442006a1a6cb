/* Arrays with their axes in another order: the message says which order it looks like. */
#include "tests/cli/batch_files.h"

#define GRAD "grad rnn --weights W.safetensors --out G.safetensors "

static void test_grad(void **state) {
  (void)state;
  write_reals("XB.npy", BPPSA_F64, 3, (int64_t[]){B, T, 1});
  write_labels("YB.npy", 2, (int64_t[]){B, T}, -1, 0);
  write_reals("XM.npy", BPPSA_F64, 3, (int64_t[]){T, 1, B});
  write_reals("XF.npy", BPPSA_F64, 3, (int64_t[]){1, T, B});
  write_reals("H0B.npy", BPPSA_F64, 3, (int64_t[]){B, 1, H});
  assert_fails(2, "Y.npy: 3 labels, expected 7: --input is [T, B, I] = [3, 7, 1], but looks like [B, T, I]",
               GRAD "--input XB.npy --labels Y.npy");
  assert_fails(2, "YB.npy: shape [3, 7], expected [T, B] = [7, 3]; it looks like [B, T]",
               GRAD "--input X.npy --labels YB.npy --loss all");
  assert_fails(2,
               "XM.npy: shape [7, 1, 3], expected [T, B, I] with T and B at least 1 and I = 1 as in the weights; its middle axis",
               GRAD "--input XM.npy --labels Y.npy");
  assert_fails(2, "I = 1 as in the weights; its first axis has that size", GRAD "--input XF.npy --labels Y.npy");
  assert_fails(2, "H0B.npy: shape [3, 1, 4], expected [L, B, H] = [1, 3, 4]; it looks like [B, L, H]",
               GRAD "--input X.npy --labels Y.npy --h0 H0B.npy");
  assert_fails(2, "YB.npy: shape [3, 7], expected [B] = [3]", GRAD "--input X.npy --labels YB.npy");
}

static void test_sequences(void **state) {
  (void)state;
  write_reals("S.npy", BPPSA_F64, 3, (int64_t[]){5, 20, 3}); /* [T, N, I] */
  write_labels("SN.npy", 1, (int64_t[]){20}, -1, 0);
  write_labels("STN.npy", 2, (int64_t[]){20, 5}, -1, 0);
  write_reals("C.npy", BPPSA_F64, 3, (int64_t[]){20, 1, 6}); /* [N, I, T] */
  assert_fails(2,
               "SN.npy: shape [20] disagrees with the inputs' 5 samples of 20 steps, expected [5]: the inputs are [N, T, I], but "
               "look like [T, N, I]",
               "train rnn --data npy:S.npy,SN.npy");
  assert_fails(2,
               "STN.npy: shape [20, 5] disagrees with the inputs' 5 samples of 20 steps, expected [5, 20]; it looks like [T, N]",
               "train rnn --data npy:S.npy,STN.npy --loss all");
  write_reals("NIT.npy", BPPSA_F64, 3, (int64_t[]){20, 3, 5});
  write_reals("TIN.npy", BPPSA_F64, 3, (int64_t[]){5, 3, 20});
  write_labels("SNT.npy", 2, (int64_t[]){20, 5}, -1, 0);
  write_labels("SOTHER.npy", 2, (int64_t[]){20, 6}, -1, 0);
  write_reals("RNT.npy", BPPSA_F64, 2, (int64_t[]){20, 5});
  write_reals("RTNC.npy", BPPSA_F64, 3, (int64_t[]){3, 20, 2});
  assert_fails(2,
               "SNT.npy: shape [20, 5] disagrees with the inputs' 20 samples of 3 steps, expected [20, 3]: the inputs are [N, T, "
               "I], but look like [N, I, T]\n",
               "train rnn --data npy:NIT.npy,SNT.npy --loss all");
  assert_fails(2, "expected [5, 3]: the inputs are [N, T, I], but look like [T, I, N]\n",
               "train gru --data npy:TIN.npy,SNT.npy --loss all");
  assert_fails(2, "expected [5]: the inputs are [N, T, I], but look like [T, I, N]\n", "train rnn --data npy:TIN.npy,SN.npy");
  assert_fails(2, "shape [20, 6] disagrees with the inputs' 20 samples of 3 steps, expected [20, 3]\n",
               "train rnn --data npy:NIT.npy,SOTHER.npy --loss all");
  assert_fails(2, "at least one target each: the inputs are [N, T, I], but look like [N, I, T]\n",
               "train rnn --data npy:NIT.npy,RNT.npy --loss mse-all");
  assert_fails(2, "at least one target each; it looks like [T, N, C]\n", "train rnn --data npy:NIT.npy,RTNC.npy --loss mse-all");
  assert_fails(2, "weights for input size 1, expected 6 as in the data, which are [N, T, I], but look like [N, I, T]",
               "eval rnn --weights W.safetensors --data npy:C.npy,SN.npy");
  assert_fails(2, "but look like [N, I, T]", "train rnn --weights W.safetensors --data npy:C.npy,SN.npy");
}

static void test_images(void **state) {
  (void)state;
  assert_runs("data bitstream --samples 4 --seq-len 2 --out-x T.npy --out-y Y4.npy");
  write_reals("I.npy", BPPSA_F32, 4, (int64_t[]){4, 32, 32, 3});
  assert_fails(2, "npy: images of [32, 32, 3], expected [3, 32, 32], the network's input [C, H, W]; it looks like [H, W, C]",
               "train lenet5 --data npy:I.npy,Y4.npy --batch 2");
  write_reals("I.npy", BPPSA_F32, 4, (int64_t[]){4, 3, 32, 31});
  assert_fails(2, "npy: images of [3, 32, 31], expected [3, 32, 32], the network's input [C, H, W]\n",
               "train lenet5 --data npy:I.npy,Y4.npy --batch 2");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_grad), cmocka_unit_test(test_sequences),
                                     cmocka_unit_test(test_images)};
  return cmocka_run_group_tests(tests, enter_with_batch, leave_directory);
}
