"""Kernel names of several models on several back ends, and the kernels of one forward of each."""

from __future__ import annotations

from dataclasses import dataclass

from tests.independent_machine import Kernel


def _torch(body: str, us: float) -> Kernel:
    return f"void at::native::{body}", us, "kernel"


EW = _torch("vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<long>, std::array<char*, 3ul> >(int)", 1.6)
FILL = _torch("vectorized_elementwise_kernel<4, at::native::FillFunctor<int>, std::array<char*, 1ul> >(int)", 1.4)
INDEX = _torch("index_elementwise_kernel<128, 4, gpu_index_kernel<at::native::index_kernel_impl>>(long)", 2.4)
INDEX_PUT = _torch("index_elementwise_kernel<128, 4, gpu_index_kernel<at::native::index_put_kernel_impl>>(long)", 2.3)
INDEX_FILL = _torch("index_elementwise_kernel<128, 4, at::native::index_fill_kernel_impl>(long)", 2)
FOREACH = _torch(
    "(anonymous namespace)::multi_tensor_apply_kernel<at::native::TensorListMetadata<2>, CopyFunctor>()", 2.2
)
ARGMAX = _torch("reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>, unsigned int> >()", 14)
MAX = _torch("reduce_kernel<512, 1, at::native::ReduceOp<c10::BFloat16, at::native::MaxOps>>()", 12)
SUM = _torch("reduce_kernel<512, 1, at::native::ReduceOp<long, at::native::func_wrapper_t<long>, unsigned int> >()", 3)
SOFTMAX = _torch("(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float, SoftMaxForwardEpilogue>()", 12)
TOPK = _torch("sbtopk::gatherTopK<float, unsigned int, 2, false>()", 11)
SORT = _torch("bitonicSortKVInPlace<2, -1, 16, 16, long, long, at::native::LTOp<long, true>, unsigned int>()", 4)
CAT = _torch("(anonymous namespace)::CatArrayBatchedCopy<OpaqueType<8u>, unsigned int, 2, 64, 64>()", 2.4)
EMBED = _torch("(anonymous namespace)::vectorized_gather_kernel<16, long>()", 2.5)
NONZERO: Kernel = ("void at_cuda_detail::cub::DeviceSelectSweepKernel<device_select_policy_hub>()", 3, "kernel")
D2D: Kernel = ("Memcpy DtoD (Device -> Device)", 1.8, "memcpy")
H2D: Kernel = ("Memcpy HtoD (Pinned -> Device)", 1.7, "memcpy")
D2H_COPY: Kernel = ("Memcpy DtoH (Device -> Pinned)", 1.9, "memcpy")
D2D_KERNEL: Kernel = ("memcpy32_post", 1.5, "kernel")
BROADCAST: Kernel = ("ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 9, "comm")
GATHER: Kernel = ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 15, "comm")
VERIFY_TREE: Kernel = (
    "void VerifyTreeGreedy<int, long>(int*, int*, int*, long*, long*, long*, unsigned int)",
    4,
    "kernel",
)
VERIFY_SAMPLED: Kernel = ("void sampling::TreeSpeculativeSamplingTargetOnly<1024u, float, int, long>()", 42, "kernel")
BUILD_TREE: Kernel = (
    "build_tree_efficient(long*, long*, long*, bool*, long*, long*, long*, int, int, int)",
    3,
    "kernel",
)
SAMPLE: Kernel = ("void flashinfer::sampling::TopKTopPSamplingFromProbKernel<1024u, float>()", 25, "kernel")
HEAD: Kernel = ("nvjet_tst_128x8_64x12_2x1_v_bz_TNT", 90, "kernel")


def triton(name: str, us: float) -> Kernel:
    """A Triton kernel: its launch is a driver call."""
    return name, us, "triton"


@dataclass(frozen=True, slots=True)
class Family:
    """Names of one back end. ``gemm``: qkv, output, gate and up, down."""

    norm: str
    gemm: tuple[str, str, str, str]
    rope: tuple[str, ...]
    attention: tuple[str, ...]  # one token per request
    multi: tuple[str, ...]  # several
    middle: tuple[str, ...]  # between gate and down: activation, routing, quantisation
    allreduce: str
    fused: bool = False  # the norm is inside the all-reduce
    linear: tuple[str, ...] = ()  # three of four layers have linear attention instead
    exchange: tuple[str, ...] = ()  # expert parallelism: tokens to their experts and back, instead of an all-reduce


_NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
_FA3 = "void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<CollectiveMainloop>>>(Params)"
_NORM = (
    "void flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>(__nv_bfloat16*, __nv_bfloat16*, __nv_bfloat16*)"
)
_ROPE = "void flashinfer::BatchQKApplyRotaryPosIdsCosSinCacheEnhancedKernel<true, 128u, 8u, 16u, __nv_bfloat16>()"
_SILU = "void flashinfer::activation::act_and_mul_kernel<__nv_bfloat16, &(silu(float const&))>(__nv_bfloat16*)"
_NVJET = ("nvjet_tst_128x64_64x8_2x1_v_bz_TNT", "nvjet_tst_64x8_64x16_4x1_v_bz_splitK_TNT",
          "nvjet_tst_192x8_64x8_2x1_v_bz_TNN", "nvjet_tst_64x8_64x16_4x1_v_bz_splitK_TNT")  # fmt: skip
FAMILIES: dict[str, Family] = {
    "fa3": Family(_NORM, _NVJET, (_ROPE, "void store_kvcache<256>(StoreKVParams)"),
                  ("prepare_varlen_num_blocks_kernel(int)", _FA3, "void flash::FlashAttnFwdCombine<128, 64>()"),
                  ("prepare_varlen_num_blocks_kernel(int)", _FA3), (_SILU,),
                  "void sglang::cross_device_reduce_1stage<__nv_bfloat16, 2>(sglang::RankData*, sglang::RankSignals)"),
    "mla": Family(_NORM, ("void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 2112u, 7168u, 1u>(float*)",
                          "void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 7168u, 2048u, 1u>(float*)",
                          "fused_moe_kernel", "fused_moe_kernel"),
                  ("per_token_group_quant_8bit_kernel<__nv_bfloat16, __nv_fp8_e4m3>()", "set_mla_kv_buffer_kernel"),
                  ("void flash_fwd_splitkv_mla_kernel<Flash_fwd_kernel_traits_mla<576, 64, 64, 8>>()",
                   "void flash_fwd_mla_combine_kernel<cutlass::bfloat16_t, float>()"),
                  ("void flash_fwd_splitkv_mla_kernel<Flash_fwd_kernel_traits_mla<576, 64, 64, 8>>()",
                   "void flash_fwd_mla_combine_kernel<cutlass::bfloat16_t, float>()"),
                  ("void moe_fused_gate_kernel<float, 1, 256>()", "void moe_align_block_size_kernel<int>()", _SILU,
                   "moe_sum_reduce_kernel"), _NCCL),
    "marlin": Family(_NORM, ("void marlin::Marlin<__nv_bfloat16, 256, 1, 8, 8>()",) * 4,
                     (_ROPE, "void at::native::index_put_kernel_impl<at::native::OpaqueType<2>>()"),
                     ("void flashinfer::BatchDecodeWithPagedKVCacheKernel<(flashinfer::PosEncodingMode)0, 2u, 4u>()",
                      "void flashinfer::PersistentVariableLengthMergeStatesKernel<8u, 16u, 8u, 4u>()"),
                     ("void flashinfer::BatchPrefillWithPagedKVCacheKernel<flashinfer::KernelTraits<1, 16u>>()",
                      "void flashinfer::PersistentVariableLengthMergeStatesKernel<8u, 16u, 8u, 4u>()"), (_SILU,),
                     "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<"
                     "(flashinfer::trtllm_allreduce_fusion::AllReduceFusionPattern)1, __nv_bfloat16, 4>()", fused=True),
    "triton": Family("_rmsnorm_fused_kernel",
                     ("void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align8>()",
                      "void gemv2T_kernel_val<int, int, __nv_bfloat16>()",
                      "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256", "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x64x256_split2"),
                     (_ROPE, "void store_kvcache<128>(StoreKVParams)"),
                     ("_fwd_grouped_kernel_stage1", "_fwd_kernel_stage2"), ("_fwd_kernel",),
                     ("_topk_forward", "_combined_routing_compute", "_swiglu"),
                     "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>()"),
    "blackwell": Family(_NORM, ("nvjet_sm100_tst_64x8_64x16_4x1_v_bz_TNT", "nvjet_sm100_tst_128x16_64x8_2x1_v_bz_TNT",
                                "bmm_E2m1_E2m1E2m1_Fp32_t128x8x512u2_s6_et64x8_m128x8x64_swiGlu_dynBatch_sm100f",
                                "bmm_Bfloat16_E2m1E2m1_Fp32_t128x8x512_s7_et128x8_m128x8x64_dynBatch_sm100f"),
                        (_ROPE,), ("fmhaSm100fKernel_QkvE4m3OBfloat16HQk576HV512PagedKvDenseMultiCtasKvVarSeqQ8Kv128",),
                        ("fmhaSm100fKernel_QkvE4m3OBfloat16HQk576HV512PagedKvDenseP1VarSeqQ16Kv128PersistentForGen",),
                        ("void moe::dev::routing::routingDeepSeek::routingMainKernel<>()",
                         "void moe::dev::finalize::finalizeKernel<>()"),
                        "void flashinfer::trtllm_mnnvl_allreduce::oneshotAllreduceFusionKernel<8, __nv_bfloat16>()",
                        fused=True),
    "hybrid": Family("_layer_norm_fwd_1pass_kernel", _NVJET, (_ROPE, "void store_kvcache<512>(StoreKVParams)"),
                     (_FA3,), (_FA3,), ("topk_gating_softmax_kernel", "fused_moe_kernel", _SILU),
                     "void sglang::cross_device_reduce_2stage<__nv_bfloat16, 4>(sglang::RankData*)",
                     linear=("_causal_conv1d_update_kernel", "fused_sigmoid_gating_delta_rule_update_kernel",
                             "_layer_norm_gated_fwd_kernel")),
    "ep": Family(_NORM, ("void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 2112u, 7168u, 1u>(float*)",
                         "void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 7168u, 2048u, 1u>(float*)",
                         "void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 4096u, 7168u, 32u>(float*)",
                         "void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 7168u, 2048u, 32u>(float*)"),
                 ("set_mla_kv_buffer_kernel",),
                 ("void flash_fwd_splitkv_mla_kernel<Flash_fwd_kernel_traits_mla<576, 64, 64, 8>>()",),
                 ("void flash_fwd_splitkv_mla_kernel<Flash_fwd_kernel_traits_mla<576, 64, 64, 8>>()",),
                 ("_silu_and_mul_post_quant_kernel",), _NCCL,
                 exchange=("void deep_ep::internode_ll::dispatch<true, false, 7168>(void*, void*, int*, long*)",
                           "void deep_ep::internode_ll::combine<7168, 11, 128>(void*, void*, long*, float*)")),
}  # fmt: skip
_TRITON = ("_kernel", "fused_", "_matmul", "_topk_f", "_combined", "_swiglu", "_fwd", "_rms", "set_mla", "moe_sum")


def forward(
    family: str, layers: int, tokens: int, ranks: int, *, prefill: bool = False, head: bool = True
) -> list[Kernel]:
    """Embedding, layers, final norm, head and the gathering of logits of one forward."""
    f = FAMILIES[family]
    slow = 1.0 + 0.06 * min(tokens, 8) + (4.0 if prefill else 0.0)
    reduce: list[Kernel] = [(f.allreduce, 11 * slow, "allreduce")] if ranks > 1 else []
    swap: list[Kernel] = [(n, 18 * slow, "comm") for n in f.exchange if ranks > 1]

    def k(name: str, us: float) -> Kernel:
        plain = "(" not in name and "<" not in name and not name.startswith(("nvjet", "fmha", "bmm"))
        return name, us * slow, "triton" if plain and name.startswith(_TRITON) else "kernel"

    kernels = [k(EMBED[0], EMBED[1]), *reduce]
    for layer in range(layers):
        special = f.linear if f.linear and layer % 4 != 3 else (f.multi if tokens > 1 else f.attention)
        norm = [] if f.fused and ranks > 1 else [k(f.norm, 2.8)]
        kernels += [*norm, k(f.gemm[0], 21), *(k(n, 2.4) for n in f.rope), *(k(n, 12) for n in special)]
        kernels += [
            k(f.gemm[1], 14),
            *reduce,
            *norm,
            *swap[:1],
            k(f.gemm[2], 46),
            *(k(n, 3) for n in f.middle),
            k(f.gemm[3], 27),
            *(swap[1:] or reduce),
        ]
    kernels.append(k(f.norm, 2.8))
    if head:
        kernels.append(k("nvjet_tst_128x8_64x12_2x1_v_bz_TNT" if family != "triton" else f.gemm[0], 90))
        if ranks > 1:
            kernels.append(GATHER)
    return kernels
