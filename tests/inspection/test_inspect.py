"""What is inside a kernel: instructions read right, loops found, resources and occupancy, and the command that shows them."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

import gemmport as gp
from absences import (
    AMD_COMPILER,
    CUDA_COMPILER,
    INTEL_COMPILER,
    LLVM_MCA,
    NVDISASM,
    OBJDUMP,
    beyond,
    needs,
    skip_without,
)
from extensions import EXTENSIONS
from gemmport import cli, kernels
from gemmport.backends import _amdgpu, _intelgpu, _machinecode, _nvrtc
from gemmport.backends.objects import Resources
from gemmport.cli import streams
from gemmport.contracts import amd
from gemmport.contracts.named_devices import device_of
from gemmport.contracts.occupancy import architecture, occupancy
from gemmport.core.errors import ToolUnavailableError
from gemmport.execution.executor import bind
from gemmport.execution.selection import backend_status
from gemmport.inspection import amdgcn, gen, ptx, sass, x86
from gemmport.inspection.comparison import Row, compare, headings
from gemmport.inspection.instructions import Access, Counts, Instruction, Kind
from gemmport.inspection.loops import hot_loop, loops
from gemmport.inspection.report import Inspection, inspect, local_bytes
from gemmport.planning import lookup
from gemmport.planning.planner import make_plan
from launched import put_on

with_compiler, with_nvdisasm = needs(CUDA_COMPILER), needs(NVDISASM)
with_amd_compiler, with_intel_compiler, with_llvm_mca = needs(AMD_COMPILER), needs(INTEL_COMPILER), needs(LLVM_MCA)

VARIANTS = [variant.name for variant in kernels.variants()]


# Single instructions

PTX = [
    ("fma.rn.f32 %f1, %f2, %f3, %f1", Kind.FMA, None),
    ("@%p1 fma.rn.f64 %fd1, %fd2, %fd3, %fd1", Kind.FMA, None),
    ("mad.lo.s32 %r1, %r2, %r3, %r4", Kind.INTEGER_FMA, None),
    ("mad.f32 %f1, %f2, %f3, %f4", Kind.FMA, None),
    ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1, %f2}, {%r1}, {%r2}, {%f1, %f2}", Kind.MATRIX, None),
    ("add.f32 %f1, %f2, %f3", Kind.FLOAT, None),
    ("add.s64 %rd1, %rd2, 4", Kind.INTEGER, None),
    ("setp.lt.f32 %p1, %f1, %f2", Kind.FLOAT, None),
    ("cvt.rn.f32.s32 %f1, %r1", Kind.CONVERSION, None),
    ("cvta.to.global.u64 %rd1, %rd2", Kind.MOVE, None),
    ("ld.global.f32 %f1, [%rd1]", Kind.MEMORY, "load global 32"),
    ("ld.global.nc.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1+16]", Kind.MEMORY, "load global 128"),
    ("ld.shared.v2.f64 {%fd1, %fd2}, [%r1]", Kind.MEMORY, "load local 128"),
    ("ld.param.u64 %rd1, [naive_param_0]", Kind.MEMORY, "load constant 64"),
    ("st.local.u32 [%rd1], %r1", Kind.MEMORY, "store private 32"),
    ("st.shared.b16 [%r1], %rs1", Kind.MEMORY, "store local 16"),
    ("ld.u8 %rs1, [%rd1]", Kind.MEMORY, "load generic 8"),
    ("atom.shared.add.f32 %f1, [%r1], %f2", Kind.MEMORY, "atomic local 32"),
    ("cp.async.cg.shared.global [%r1], [%rd1], 16", Kind.MEMORY, "copy global 128"),
    ("cp.async.wait_group 0", Kind.BARRIER, None),
    ("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2, %r3, %r4}, [%r5]", Kind.MEMORY, "load local 128"),
    ("bar.sync 0", Kind.BARRIER, None),
    ("shfl.sync.bfly.b32 %r1, %r2, 16, 31, -1", Kind.EXCHANGE, None),
    ("@%p1 bra $L__BB0_2", Kind.BRANCH, None),
    ("invented.f32 %f1", Kind.UNKNOWN, None),
]

SASS = [
    ("FFMA R1, R2.reuse, R3, R1", Kind.FMA, None),
    ("@!P0 DFMA R4, R2, R6, R4", Kind.FMA, None),
    ("HFMA2 R1, R2, R3, R1", Kind.FMA, None),
    ("HFMA2.MMA R163, -RZ, RZ, 0, 0", Kind.MOVE, None),
    ("HMMA.16816.F32 R4, R8, R10, R4", Kind.MATRIX, None),
    ("HGMMA.64x64x16.F32 R24, gdesc[UR4], R24", Kind.MATRIX, None),
    ("FADD.FTZ R1, R2, R3", Kind.FLOAT, None),
    ("MUFU.RCP R0, R0", Kind.FLOAT, None),
    ("IMAD R1, R2, R3, R4", Kind.INTEGER_FMA, None),
    ("IMAD.WIDE.U32 R2, R3, 0x4, R4", Kind.INTEGER_FMA, None),
    ("IMAD.MOV.U32 R117, RZ, RZ, RZ", Kind.MOVE, None),
    ("IMAD.IADD R1, R2, 0x1, R3", Kind.INTEGER, None),
    ("IMAD.SHL.U32 R1, R2, 0x4, RZ", Kind.INTEGER, None),
    ("UIADD3 UR4, UR7, 0x7f, URZ", Kind.INTEGER, None),
    ("LEA.HI.X R1, R2, R3, R4, 0x2, P0", Kind.INTEGER, None),
    ("F2F.F64.F32 R2, R4", Kind.CONVERSION, None),
    ("HADD2.F32 R0, -RZ, R5.H0_H0", Kind.CONVERSION, None),
    ("S2R R0, SR_TID.X", Kind.MOVE, None),
    ("LDG.E.CONSTANT R5, desc[UR6][R2.64]", Kind.MEMORY, "load global 32"),
    ("LDG.E.128.CONSTANT R4, desc[UR6][R2.64]", Kind.MEMORY, "load global 128"),
    ("LDG.E.U16 R5, desc[UR6][R2.64]", Kind.MEMORY, "load global 16"),
    ("LDS.128 R8, [R4+0x10]", Kind.MEMORY, "load local 128"),
    ("LDS.U.64 R8, [R4+0x10]", Kind.MEMORY, "load local 64"),
    ("STS.U8 [R4], R5", Kind.MEMORY, "store local 8"),
    ("STL.64 [R1+0x8], R2", Kind.MEMORY, "store private 64"),
    ("LDL R2, [R1]", Kind.MEMORY, "load private 32"),
    ("ULDC.64 UR6, c[0x0][0x298]", Kind.MEMORY, "load constant 64"),
    ("LDSM.16.M88.4 R4, [R2]", Kind.MEMORY, "load local 128"),
    ("LDGSTS.E.BYPASS.128 [R1], desc[UR4][R2.64]", Kind.MEMORY, "copy global 128"),
    ("UTMALDG.2D [UR8], [UR4]", Kind.MEMORY, "copy global 0"),
    ("RED.E.ADD.F32.FTZ.RN.STRONG.GPU desc[UR4][R2.64], R5", Kind.MEMORY, "atomic global 32"),
    ("BAR.SYNC.DEFER_BLOCKING 0x0", Kind.BARRIER, None),
    ("LDGDEPBAR", Kind.BARRIER, None),
    ("SHFL.BFLY PT, R1, R2, 0x10, 0x1f", Kind.EXCHANGE, None),
    ("BSSY B0, `(.L_x_2)", Kind.BRANCH, None),
    ("INVENTED R1, R2", Kind.UNKNOWN, None),
]

X86 = [
    ("vfmadd231ps zmm1,zmm2,zmm3", Kind.FMA, None),
    ("vfmadd231ps zmm11,zmm14,ZMMWORD PTR [r8+r11*4]", Kind.FMA, "load memory 512"),
    ("vfmadd213ss xmm1,xmm2,DWORD PTR [rax]", Kind.FMA, "load memory 32"),
    ("vfnmadd132pd ymm1,ymm2,ymm3", Kind.FMA, None),
    ("vfmadd231ps zmm1,zmm2,DWORD BCST [rax+0x4]", Kind.FMA, "load memory 32"),
    ("vfmadd231ps zmm1, zmm2, dword ptr [rax + 4]{1to16}", Kind.FMA, "load memory 32"),
    ("vmulps ymm1,ymm2,ymm3", Kind.FLOAT, None),
    ("vucomiss xmm1,xmm2", Kind.FLOAT, None),
    ("vpmaddwd ymm1,ymm2,ymm3", Kind.INTEGER_FMA, None),
    ("vpaddq zmm13,zmm13,zmm10", Kind.INTEGER, None),
    ("imul rax,rdx", Kind.INTEGER, None),
    ("popcnt rax,rbx", Kind.INTEGER, None),
    ("lea r15,[rcx+rax*1]", Kind.INTEGER, None),
    ("vcvtdq2ps zmm1,zmm2", Kind.CONVERSION, None),
    ("movsxd rax,DWORD PTR [rdi+0x88]", Kind.CONVERSION, "load memory 32"),
    ("vmovups zmm6,ZMMWORD PTR [r11]", Kind.MEMORY, "load memory 512"),
    ("vmovups ZMMWORD PTR [r9],zmm6", Kind.MEMORY, "store memory 512"),
    ("vbroadcastss zmm4,DWORD PTR [r15+0x4]", Kind.MEMORY, "load memory 32"),
    ("vgatherqps ymm16{k1},DWORD PTR [r14+zmm15*4]", Kind.MEMORY, "load memory 32"),
    ("vextracti128 XMMWORD PTR [rax],ymm1,0x1", Kind.MEMORY, "store memory 128"),
    ("mov QWORD PTR [rsp+0x98],rax", Kind.MEMORY, "store private 64"),
    ("vmovaps xmm1,XMMWORD PTR [rip+0x1234]", Kind.MEMORY, "load constant 128"),
    ("push rbp", Kind.MEMORY, "store private 64"),
    ("cmp DWORD PTR [rdi],0x10", Kind.INTEGER, "load memory 32"),
    ("lock xadd DWORD PTR [rdi],eax", Kind.INTEGER, "atomic memory 32"),
    ("vxorps xmm0,xmm0,xmm0", Kind.MOVE, None),
    ("vxorps xmm0,xmm1,xmm2", Kind.INTEGER, None),
    ("vpermps zmm1,zmm2,zmm3", Kind.MOVE, None),
    ("jb 490 <naive+0x490>", Kind.BRANCH, None),
    ("mfence", Kind.BARRIER, None),
    ("invented zmm1", Kind.UNKNOWN, None),
]
GEN = [
    ("mad (16|M0) r12.0<1>:f r4.0<1;0>:f r6.0<1;0>:f r8.0<0>:f {Compacted,$2.dst}", Kind.FMA, None),
    ("(W) mad (1|M0) r127.0<1>:ud r127.2<0;0>:ud r127.0<0;0>:uw 0xC0:uw {I@1}", Kind.INTEGER_FMA, None),
    ("dpas.8x8 (8|M0) r10:f r10:f r20:bf r30.0:bf {$0}", Kind.MATRIX, None),
    ("mul (16|M0) r1.0<1>:f r2.0<1;1,0>:f r3.0<1;1,0>:f", Kind.FLOAT, None),
    ("(W) add (1|M0) r3.2<1>:q r6.11<0;1,0>:d 63:w {A@1,$1.dst}", Kind.INTEGER, None),
    ("mov (16|M0) r1.0<1>:f r2.0<1;1,0>:hf", Kind.CONVERSION, None),
    ("(W) mov (16|M0) r127.0<1>:ud 0x0:ud", Kind.MOVE, None),
    ("sync.nop null {Compacted,$3.dst}", Kind.BARRIER, None),
    ("(W&~f1.0) jmpi L728", Kind.BRANCH, None),
    ("send.dc1 (16|M0) r12 r14 null 0x0 0x04205E00 {@2} // untyped surface read with x", Kind.MEMORY, "load global 32"),
    ("send.dc1 (16|M0) r18 r66 null 0x0 0x048050FE {$1} // untyped surface read with xyzw", Kind.MEMORY, "load local 128"),
    ("send.slm (32|M0) null r6 r8:2 0x0 0x08000504 {$1} // rd:0; store.slm.d32.a32", Kind.MEMORY, "store local 32"),
    ("send.ugm (32|M0) r6 r8 null:0 0x0 0x08000504 {$1} // wr:4+0, rd:8; load.ugm.d32x4.a64", Kind.MEMORY, "load global 128"),
    ("send.ugm (1|M0) r1 r127 null:0 0x0 0x6228E500 {A@1} // load.ugm.d32x32t.a32.ca", Kind.MEMORY, "load constant 1024"),
    ("(W) send.gtwy (1|M0) null r6 null 0x0 0x02000004 {@1} // wr:1+0, rd:0; signal barrier", Kind.BARRIER, None),
    ("invented (16|M0) r1.0<1>:f r2.0<1;1,0>:f", Kind.UNKNOWN, None),
]  # fmt: skip


AMDGCN = [
    ("v_fma_f32 v0, v1, v2, v0", Kind.FMA, None),
    ("v_fmac_f64_e32 v[0:1], v[2:3], v[4:5]", Kind.FMA, None),
    ("v_pk_fma_f32 v[14:15], v[56:57], v[52:53], v[14:15] op_sel_hi:[0,1,1]", Kind.FMA, None),
    ("v_fma_mix_f32 v0, v1, v2, v3 op_sel_hi:[1,1,0]", Kind.FMA, None),
    ("v_dual_fmac_f32 v0, v2, v4 :: v_dual_fmac_f32 v1, v3, v7", Kind.FMA, None),
    ("v_dual_mov_b32 v0, v54 :: v_dual_fmac_f32 v1, v3, v7", Kind.FMA, None),
    ("v_dual_mov_b32 v0, v54 :: v_dual_add_nc_u32 v71, s4, v34", Kind.MOVE, None),
    ("v_mfma_f64_16x16x4f64 v[0:7], v[8:9], v[10:11], v[0:7]", Kind.MATRIX, None),
    ("v_mfma_f32_32x32x2_f32 a[0:15], v0, v1, a[0:15]", Kind.MATRIX, None),
    ("v_wmma_f32_16x16x16_f16 v[0:7], v[8:15], v[16:23], v[0:7]", Kind.MATRIX, None),
    ("v_mad_u64_u32 v[58:59], s[0:1], v51, s20, 0", Kind.INTEGER_FMA, None),
    ("v_dot4_i32_i8 v0, v1, v2, v0", Kind.INTEGER_FMA, None),
    ("v_mul_f32_e32 v0, v1, v2", Kind.FLOAT, None),
    ("v_cmp_lt_f64_e32 vcc, v[0:1], v[2:3]", Kind.FLOAT, None),
    ("v_rcp_iflag_f32_e32 v0, v1", Kind.FLOAT, None),
    ("v_cvt_f32_u32_e32 v0, v1", Kind.CONVERSION, None),
    ("v_add_co_u32_e32 v68, vcc, s8, v56", Kind.INTEGER, None),
    ("v_lshl_add_u64 v[36:37], v[10:11], 2, s[4:5]", Kind.INTEGER, None),
    ("v_cndmask_b32_e32 v0, v1, v2, vcc", Kind.INTEGER, None),
    ("s_cmp_lt_i32 s9, s30", Kind.INTEGER, None),
    ("v_mov_b32_e32 v0, v1", Kind.MOVE, None),
    ("v_mov_b32_dpp v0, v1 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf", Kind.EXCHANGE, None),
    ("ds_bpermute_b32 v0, v1, v2", Kind.EXCHANGE, None),
    ("v_accvgpr_read_b32 v0, a1", Kind.MOVE, None),
    ("global_load_dwordx4 v[0:3], v[4:5], off", Kind.MEMORY, "load global 128"),
    ("global_load_b128 v[0:3], v[4:5], off", Kind.MEMORY, "load global 128"),
    ("global_load_ubyte v0, v[4:5], off", Kind.MEMORY, "load global 8"),
    ("global_load_d16_b16 v0, v[4:5], off", Kind.MEMORY, "load global 16"),
    ("global_store_dwordx2 v[0:1], v[2:3], off", Kind.MEMORY, "store global 64"),
    ("ds_read2_b32 v[0:1], v2 offset0:1 offset1:2", Kind.MEMORY, "load local 64"),
    ("ds_load_2addr_stride64_b64 v[0:3], v2 offset1:2", Kind.MEMORY, "load local 128"),
    ("ds_write_b128 v0, v[1:4]", Kind.MEMORY, "store local 128"),
    ("s_load_dwordx16 s[0:15], s[4:5], 0x0", Kind.MEMORY, "load constant 512"),
    ("scratch_store_dwordx3 off, v[0:2], off", Kind.MEMORY, "store private 96"),
    ("buffer_load_dword v0, off, s[0:3], 0 offset:4", Kind.MEMORY, "load private 32"),
    ("global_atomic_add_u32 v[0:1], v2, off", Kind.MEMORY, "atomic global 32"),
    ("s_barrier", Kind.BARRIER, None),
    ("s_waitcnt lgkmcnt(0)", Kind.BARRIER, None),
    ("s_cbranch_scc1 .LBB0_5", Kind.BRANCH, None),
    ("invented_f32 v0", Kind.UNKNOWN, None),
]


def amdgcn_text(*statements: str) -> str:
    return "f:\n" + "".join(f"\t{text} ; comment\n" for text in statements)


def ptx_text(*statements: str) -> str:
    return ".visible .entry f(\n.param .u64 f_param_0\n)\n{\n" + "".join(f"\t{text};\n" for text in statements) + "}\n"


def sass_text(*statements: str) -> str:
    return "f:\n.text.f:\n" + "".join(f"        /*{16 * n:04x}*/    {text} ;\n" for n, text in enumerate(statements))


def x86_text(*statements: str) -> str:
    return "f:\n" + "".join(f"    {4 * n:4x}:\t{text}\n" for n, text in enumerate(statements))


ptx_of_f = partial(ptx.parse, function="f")

EVERY = [
    *(pytest.param(ptx_of_f, ptx_text(text), kind, access, id=f"PTX {text}") for text, kind, access in PTX),
    *(pytest.param(sass.parse, sass_text(text), kind, access, id=f"SASS {text}") for text, kind, access in SASS),
    *(pytest.param(x86.parse, x86_text(text), kind, access, id=f"x86 {text}") for text, kind, access in X86),
    *(pytest.param(amdgcn.parse, amdgcn_text(text), kind, access, id=text) for text, kind, access in AMDGCN),
    *(pytest.param(gen.parse, f"f:\n  {text}\n", kind, access, id=text) for text, kind, access in GEN),
]


@pytest.mark.parametrize(("parse", "text", "kind", "access"), EVERY)
def test_an_instruction_is_read_as_what_it_does_and_touches(parse, text, kind, access):
    (instruction,) = parse(text)
    assert instruction.kind is kind
    assert [f"{own.verb} {own.space} {own.bits}" for own in instruction.accesses] == ([access] if access else [])


# Whether an instruction never goes on to the next one, and where it may jump.
FLOW = [
    (ptx_of_f, ptx_text("bra.uni $L_1"), True, "$L_1"),
    (ptx_of_f, ptx_text("@%p1 bra $L_1"), False, "$L_1"),
    (ptx_of_f, ptx_text("ret"), True, None),
    (ptx_of_f, ptx_text("call.uni (r), g, (a)"), False, None),
    (sass.parse, sass_text("BRA `(.L_x_1)"), True, ".L_x_1"),
    (sass.parse, sass_text("@P0 BRA `(.L_x_1)"), False, ".L_x_1"),
    (sass.parse, sass_text("@!UP0 BRA.U `(.L_x_1)"), False, ".L_x_1"),
    (sass.parse, sass_text("BRA.U !UP0, `(.L_x_1)"), False, ".L_x_1"),
    (sass.parse, sass_text("BRA P6, `(.L_x_1)"), False, ".L_x_1"),
    (sass.parse, sass_text("BRA.DIV UR4, `(.L_x_1)"), False, ".L_x_1"),
    (sass.parse, sass_text("EXIT"), True, None),
    (sass.parse, sass_text("@P0 EXIT"), False, None),
    (sass.parse, sass_text("BSSY B0, `(.L_x_1)"), False, None),
    (gen.parse, "(W&f0.0) jmpi L760", False, "L760"),
    (gen.parse, "jmpi L760", True, "L760"),
    (gen.parse, "(W) jmpi L760", True, "L760"),
    (gen.parse, "(f1.1) while (8|M0) L9064", False, "L9064"),
    (gen.parse, "(W) send.ts (8|M0) null r127 null 0x0 0x02000010 {EOT,@1}", True, None),
    (amdgcn.parse, amdgcn_text("s_branch .LBB0_2"), True, ".LBB0_2"),
    (amdgcn.parse, amdgcn_text("s_cbranch_execz .LBB0_2"), False, ".LBB0_2"),
    (amdgcn.parse, amdgcn_text("s_endpgm"), True, None),
    (x86.parse, x86_text("jmp 10 <f+0x10>"), True, "10"),
    (x86.parse, x86_text("jne 0x10 <f+0x10>"), False, "10"),
    (x86.parse, x86_text("bnd jmp 10 <f+0x10>"), True, "10"),
    (x86.parse, x86_text("ret"), True, None),
    (x86.parse, x86_text("call 10 <g>"), False, None),
]


@pytest.mark.parametrize(("parse", "text", "ends", "target"), FLOW)
def test_it_is_known_where_an_instruction_goes(parse, text, ends, target):
    (instruction,) = parse(text)
    assert (instruction.ends, instruction.target) == (ends, target)


@pytest.mark.parametrize("language", [ptx, sass, gen], ids=["PTX", "SASS", "Gen"])
def test_no_name_has_two_kinds(language):
    names = [name for own in language._BY_NAME.values() for name in own.split()]
    assert len(names) == len(set(names))


def test_what_reads_and_writes_memory_does_both():
    (instruction,) = x86.parse(x86_text("add DWORD PTR [rdi],eax"))
    assert set(instruction.accesses) == {Access("load", "memory", 32), Access("store", "memory", 32)}


def test_a_frame_pointer_is_the_stack_only_where_it_was_made_one():
    load = "mov rax,QWORD PTR [rbx+0x8]"
    with_frame, without = x86.parse(x86_text("mov rbx,rsp", load)), x86.parse(x86_text("mov rbx,rdi", load))
    assert [i[1].accesses[0].space for i in (with_frame, without)] == ["private", "memory"]


def test_padding_comments_and_declarations_are_no_instructions():
    declared = ".entry f()\n{\n.reg .f32 %f<3>; // fma.rn.f32 %f1, %f1, %f1, %f1;\n.loc 1 2 3\n"
    inline = "{ // inline\nfma.rn.f16 %rs1, %rs2, %rs3, %rs4;\n}\n"
    assert [i.kind for i in ptx.parse(f"{declared}{inline}ret;\n}}\n", "f")] == [Kind.FMA, Kind.BRANCH]
    assert [i.kind for i in sass.parse(sass_text("EXIT", "BRA `(.L_x_3)", "NOP", "NOP"))] == [Kind.BRANCH] * 2
    assert [i.text for i in x86.parse(x86_text("nop", "endbr64", "ret"))] == ["ret"]


def test_only_the_entry_that_was_asked_for_is_read():
    first, last = (ptx_text("exit").replace("entry f(", f"entry {name}(") for name in ("first", "last"))
    text = first + ptx_text("bar.sync 0", "ret") + last
    assert [i.text for i in ptx.parse(text, "f")] == ["bar.sync 0", "ret"]
    assert ptx.parse(text, "other") == []


# Loops


def code(*steps: str) -> list[Instruction]:
    """Steps such as "a", "L: a", "a > L" (may jump to L), "a >> L" (jumps to L); a step of the name fma is one."""
    instructions = []
    for step in steps:
        label, _, rest = step.rpartition(": ")
        name, jump, target = next((rest.partition(j) for j in (" >> ", " > ") if j in rest), (rest, "", ""))
        kind = Kind.FMA if name.startswith("fma") else Kind.INTEGER
        instructions.append(
            Instruction(name, kind, (), (label,) if label else (), target or None, jump == " >> " or name == "end")
        )
    return instructions


def names(instructions):
    return [instruction.text for instruction in instructions]


def test_the_hot_loop_is_the_inner_one_without_what_surrounds_it():
    steps = code("a", "O: b", "I: fma1", "fma2", "c > I", "fma3", "d > O", "end")
    assert names(hot_loop(steps)) == ["fma1", "fma2", "c"]
    assert sorted(loops(steps)) == [(1, 5, 6), (2, 3, 4)]


def test_multiply_adds_of_an_outer_loop_count_where_there_are_more():
    steps = code("a", "O: fma1", "I: b", "c > I", "fma2", "d > O", "end")
    assert names(hot_loop(steps)) == ["fma1", "fma2", "d"]


def test_a_slow_path_behind_the_end_makes_no_loop():
    steps = code("a > S", "R: fma", "end", "S: b", "c >> R")
    assert loops(steps) == []
    assert hot_loop(steps) == ()


def test_a_loop_with_a_slow_path_has_it_as_a_part():
    steps = code("a", "L: b > S", "R: fma", "c > L", "end", "S: d >> R")
    assert names(hot_loop(steps)) == ["b", "fma", "c", "d"]


def test_what_cannot_be_reached_is_no_loop():
    assert loops(code("end", "X: fma", "a > X", "end")) == []
    assert loops([]) == []


def test_floating_point_goes_before_integers_and_integers_before_length():
    long = code("A: a", "b", "c > A", "B: fma", "d > B", "end")
    assert names(hot_loop(long)) == ["fma", "d"]
    integers = [replace(step, kind=Kind.INTEGER_FMA) if step.kind is Kind.FMA else step for step in long]
    assert names(hot_loop(integers)) == ["fma", "d"]
    none = [replace(step, kind=Kind.INTEGER) for step in long]
    assert names(hot_loop(none)) == ["a", "b", "c"]


PTX_LOOP = """
.entry f()
{
    mov.u32 %r1, 0;
$L_1:
    fma.rn.f32 %f1, %f2, %f3, %f1;
    @%p1 bra $L_1;
    ret;
}
"""

SASS_LOOP = """
        /*0000*/                   MOV R1, R2 ;
.L_x_1:
        /*0010*/                   FFMA R1, R2, R3, R1 ;
        /*0020*/               @P0 BRA `(.L_x_1) ;
        /*0030*/                   EXIT ;
.L_x_2:
        /*0040*/                   BRA `(.L_x_2);
        /*0050*/                   NOP;
"""

X86_LOOP = """
   0:\tmov    eax,ebx
   8:\tnop
   9:\tvfmadd231ps zmm1,zmm2,zmm3
   f:\tjb     8 <f+0x8>
  11:\tret
"""

GEN_LOOP = """
  mov (8|M0) r1.0<1>:ud r2.0<0;1,0>:ud
L16:
  mad (8|M0) r12.0<1>:f r4.0<1;0>:f r6.0<1;0>:f r8.0<0>:f
  (f1.1) while (8|M0) L16
L48:
  (W) send.ts (8|M0) null r127 null 0x0 0x02000010 {EOT,@1}
  illegal
"""

AMDGCN_LOOP = """
f:
	s_mov_b32 s0, 0
.LBB0_1: ; =>This Inner Loop Header: Depth=1
	v_fmac_f32_e32 v0, v1, v2
	s_cbranch_scc1 .LBB0_1
; %bb.2:
	s_endpgm
"""


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (gen.parse, GEN_LOOP),
        (amdgcn.parse, AMDGCN_LOOP),
        (ptx_of_f, PTX_LOOP),
        (sass.parse, SASS_LOOP),
        (sass.parse, SASS_LOOP.replace("@P0 BRA", "    BRA.U UP0,")),
        (x86.parse, X86_LOOP),
    ],
    ids=["Gen", "AMDGCN", "PTX", "SASS", "SASS with a uniform condition", "x86, with padding at the head"],
)
def test_loops_are_found_in_every_language(parse, text):
    loop = hot_loop(parse(text))
    assert [instruction.kind for instruction in loop] == [Kind.FMA, Kind.BRANCH]


def test_ratios_leave_out_arguments_and_what_is_private():
    loads = [("load", "local", 128), ("load", "constant", 64), ("load", "private", 32), ("store", "local", 32)]
    steps = [Instruction("", Kind.MEMORY, (Access(*own),)) for own in loads] + [Instruction("", Kind.FMA)] * 8
    counts = Counts.of(steps)
    assert counts.multiply_adds_per_load == 8
    assert counts.multiply_adds_per_word == 2
    assert Counts.of(steps[1:]).multiply_adds_per_load is None


# Occupancy

# Architecture, work-items, registers and bytes of local memory; groups and what limits them, by NVIDIA's cuda_occupancy.h of
# CUDA 13.0.
CALCULATED = [
    (70, 570, 8, 0, 3, "threads"), (70, 183, 128, 9549, 2, "registers"), (70, 32, 16, 23910, 4, "local memory"),
    (70, 14, 54, 0, 32, "groups"), (70, 806, 4, 33742, 2, "threads and local memory"),
    (75, 583, 86, 16672, 1, "threads and registers"),
    (75, 14, 32, 0, 16, "groups"), (80, 653, 48, 19801, 1, "registers"), (80, 266, 27, 26488, 6, "local memory"),
    (86, 325, 55, 43773, 2, "local memory"), (86, 4, 116, 0, 16, "registers and groups"), (89, 139, 151, 8934, 2, "registers"),
    (89, 623, 21, 3500, 2, "threads"), (90, 120, 140, 37321, 3, "registers"), (90, 392, 32, 20179, 4, "threads and registers"),
    (90, 35, 106, 44480, 5, "local memory"), (90, 24, 40, 0, 32, "groups"), (100, 957, 15, 2219, 2, "threads"),
    (100, 32, 236, 27756, 8, "registers and local memory"), (110, 4, 55, 8130, 24, "groups"),
    (120, 157, 45, 38474, 2, "local memory"), (120, 31, 52, 0, 24, "groups"), (90, 1024, 65, 0, 0, "registers"),
    (90, 256, 33, 0, 6, "registers"), (90, 128, 16, 46080, 4, "local memory"),
]  # fmt: skip


@pytest.mark.parametrize(("number", "work_items", "registers", "local", "groups", "limits"), CALCULATED)
def test_occupancy_is_that_of_nvidias_calculator(number, work_items, registers, local, groups, limits):
    limited = architecture(f"sm_{number}")
    held = occupancy(limited, work_items=work_items, registers=registers, local_bytes=local)
    assert held.groups == groups
    assert set(held.limited_by) == set(limits.split(" and "))
    assert held.warps == groups * -(-work_items // 32)
    assert held.percent == pytest.approx(100 * held.warps / (limited.threads / 32))


def test_architectures_are_known_by_name_with_and_without_a_letter():
    assert architecture("sm_90a") is architecture("sm_90")
    assert architecture("gfx90a") is None
    assert amd.architecture("sm_90") is None
    assert architecture("") is None
    assert device_of("sm_90").most_local_memory == 227 * 1024  # CUDA C++ Programming Guide: most for a block
    with pytest.raises(gp.DeviceNotFoundError, match=r"sm_42.*sm_90.*gfx90a"):
        device_of("sm_42")


# Architecture; work-items, vector and scalar registers and bytes of local memory; groups and what limits them, by the rules of
# the ISA: a SIMD of gfx90a has 512 registers for each work-item of a wave, given by 8, and 8 waves at most.
ON_AMD = [
    ("gfx90a", 256, 82, 35, 8320, 5, "registers"), ("gfx90a", 256, 64, 35, 0, 8, "waves and registers"),
    ("gfx90a", 256, 128, 35, 16385, 3, "local memory"), ("gfx90a", 64, 128, 35, 0, 16, "registers"),
    ("gfx906", 256, 24, 96, 0, 8, "scalar registers"), ("gfx906", 256, 25, 32, 0, 9, "registers"),
    ("gfx90a", 128, 8, 32, 0, 16, "waves and groups"), ("gfx906", 64, 8, 32, 0, 40, "waves"),
    ("gfx1100", 256, 92, 33, 8320, 8, "waves and registers"), ("gfx1102", 256, 92, 33, 0, 5, "registers"),
    ("gfx1100", 256, 97, 200, 65536, 2, "local memory"), ("gfx1030", 128, 233, 43, 0, 4, "registers"),
    ("gfx1010", 64, 24, 100, 0, 32, "groups"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "work_items", "registers", "scalars", "local", "groups", "limits"), ON_AMD)
def test_occupancy_of_amds_gpus_follows_their_budgets(name, work_items, registers, scalars, local, groups, limits):
    limited = amd.architecture(name)
    held = amd.occupancy(limited, work_items=work_items, registers=registers, scalars=scalars, local_bytes=local)
    assert held.groups == groups
    assert set(held.limited_by) == set(limits.split(" and "))
    assert held.per_scheduler == groups * work_items / limited.wave / 4


# Tools and logs

LOG = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'other' for 'sm_90'
ptxas info    : Function properties for other
    8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 16 registers, 400 bytes cmem[0]
ptxas info    : Compiling entry function 'naive' for 'sm_90'
ptxas info    : Function properties for naive
    128 bytes stack frame, 112 bytes spill stores, 96 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 8192 bytes smem, 400 bytes cmem[0]
"""


def test_the_log_of_ptxas_is_read_for_the_function_asked_for():
    assert _machinecode.ptxas_resources(LOG, "naive") == Resources(255, 112, 96, 128, 8192, 1)
    assert _machinecode.ptxas_resources(LOG, "other") == Resources(16, 4, 4, 8, 0, None)
    assert _machinecode.ptxas_resources(LOG, "absent") == Resources()


def test_nvdisasm_is_looked_for_in_toolkits_and_wheels(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    for variable in ("CUDA_ROOT", "CUDA_PATH"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "toolkit"))
    wheel = tmp_path / "site" / "nvidia" / "cu13" / "bin"
    wheel.mkdir(parents=True)
    found = {"nvidia": SimpleNamespace(submodule_search_locations=[str(tmp_path / "site" / "nvidia")])}
    monkeypatch.setattr(_machinecode.importlib.util, "find_spec", found.get)
    look = _machinecode.nvdisasm.__wrapped__
    absent = look()
    assert absent is None or absent.startswith("/usr/local/cuda/")
    for folder in (wheel, tmp_path / "toolkit" / "bin", tmp_path):
        folder.mkdir(parents=True, exist_ok=True)
        tool = folder / "nvdisasm"
        tool.write_text("#!/bin/sh\n")
        tool.chmod(0o755)
        if absent is None or folder is not wheel:
            assert look() == str(tool)


@with_compiler
def test_without_nvdisasm_everything_else_is_told(monkeypatch):
    monkeypatch.setattr(_machinecode, "nvdisasm", lambda: None)
    found = inspected("naive")
    assert [own.listing.language for own in found.codes] == ["PTX"]
    assert found.resources.registers
    assert "pip install nvidia-cuda-nvdisasm" in " ".join(found.notes)


def test_a_tool_that_fails_is_told_with_its_words(monkeypatch, tmp_path):
    tool = tmp_path / "nvdisasm"
    tool.write_text("#!/bin/sh\necho unsupported architecture >&2\nexit 1\n")
    tool.chmod(0o755)
    monkeypatch.setattr(_machinecode, "nvdisasm", lambda: str(tool))
    listing = _machinecode.sass(b"\x7fELF", "f")
    assert listing.text == ""
    assert "unsupported architecture" in listing.note


def test_without_a_disassembler_of_the_host_it_is_said_how_to_get_one(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    listing = _machinecode.host_code(b"\x7fELF\x02\x01" + b"\0" * 12 + b"\x3e\0", "f")
    assert (listing.language, listing.text) == ("x86-64", "")
    assert "apt install binutils" in listing.note


# CUDA, without a GPU


def inspected(kernel: str, arch: str = "sm_90", number: int | None = None, size: int = 1024, **params) -> Inspection:
    problem = gp.GemmProblem.create(size, size, size)
    plan = make_plan(problem, device_of(arch), lookup.load_configuration(), kernel=kernel, params=params)
    return inspect(plan, number=number)


@with_compiler
@pytest.mark.sample(kernel=["tiled", "simt"], dtype=["float32"])
@pytest.mark.every_value("dtype", ["float16", "float32", "int8", "complex64"])
@pytest.mark.every_value("kernel", VARIANTS)
def test_every_instruction_of_the_family_is_classified(kernel, dtype):
    problem = gp.GemmProblem.create(61, 61, 61, dtype=dtype)
    try:
        plan = make_plan(problem, device_of("sm_90"), lookup.load_configuration(), kernel=kernel)
    except gp.UnsupportedError as error:
        pytest.skip(beyond(device_of("sm_90"), str(error)))
    found = inspect(plan)
    assert found.codes
    for own in found.codes:
        assert own.loop
        unknown = [i.text for i in own.instructions if i.kind is Kind.UNKNOWN]
        assert not unknown, f"{own.listing.language}: {unknown[:5]}"


@with_compiler
@with_nvdisasm
@pytest.mark.parametrize("number", [75, 90, 120])
def test_machine_code_of_old_and_new_architectures_is_read(number):
    if number not in _nvrtc.architectures():
        pytest.skip(beyond(device_of(f"sm_{number}"), f"{_nvrtc.compiler()} does not compile for it"))
    found = inspected("register_tiled", f"sm_{number}", WPTM=8, WPTN=4)
    assert [own.listing.language for own in found.codes] == ["PTX", "SASS"]
    for own in found.codes:
        assert own.counts.kinds[Kind.UNKNOWN] == 0
        assert own.loop_counts.kinds[Kind.FMA] > 0
        assert own.loop_counts.kinds[Kind.FMA] % (8 * 4) == 0  # as often as the compiler writes the loop out
        assert own.loop_counts.multiply_adds_per_word == pytest.approx(8 * 4 / (8 + 4), rel=0.2)
    assert found.resources.registers > 8 * 4 + 8 + 4
    assert found.resources.spill_stores is not None
    assert found.resources.local_bytes == found.launch.local_bytes
    assert found.occupancy.groups >= 1


@with_compiler
@pytest.mark.parametrize(("rows", "columns"), [(4, 4), (8, 4), (8, 8)])
def test_the_loop_shows_what_register_tiling_is_for(rows, columns):
    found = inspected("register_tiled", WPTM=rows, WPTN=columns)
    (loop,) = [own.loop_counts for own in found.codes if own.listing.language == "PTX"]
    assert loop.kinds[Kind.FMA] % (rows * columns) == 0
    assert loop.multiply_adds_per_word == pytest.approx(rows * columns / (rows + columns))


@with_compiler
def test_barriers_stand_in_the_loop_of_a_tile_that_is_written_out():
    (loop,) = [own.loop_counts for own in inspected("tiled").codes if own.listing.language == "PTX"]
    assert loop.kinds[Kind.BARRIER] == 2
    assert loop.kinds[Kind.FMA] == 32  # TS
    assert loop.accesses[Access("load", "local", 32)] == 2 * 32


@pytest.mark.machine_code
@with_compiler
def test_each_launch_of_a_plan_can_be_inspected(monkeypatch):
    monkeypatch.setattr(kernels, "_FAMILY", dict(kernels._FAMILY))
    for variant in EXTENSIONS:
        gp.register(variant)
    product, reduction = inspected("split_k"), inspected("split_k", number=5)
    assert (product.number, product.launch.kernel.function) == (4, "split_k")
    assert reduction.launch.kernel.function == "sum_parts"
    own = inspected("pretransposed")
    assert own.launch.kernel.function == "pretransposed"
    with pytest.raises(gp.UnsupportedError, match=r"no launch 6.*from 1 to 5"):
        inspected("split_k", number=6)


@with_compiler
def test_local_memory_is_what_is_declared_and_what_is_given_at_launch():
    found = inspected("tiled")
    launch = replace(found.launch, dynamic_local_bytes=100)
    assert local_bytes(launch, Resources(local_bytes=4096)) == 4196
    assert local_bytes(launch, Resources()) == found.launch.local_bytes + 100
    (row,) = [row for row in compare([found]) if row.name.startswith("local memory")]
    assert row.values == (found.launch.local_bytes,)


@with_amd_compiler
@pytest.mark.parametrize(("rows", "columns"), [(4, 4), (8, 4)])
def test_amds_code_shows_what_register_tiling_is_for(rows, columns):
    found = inspected("register_tiled", "gfx1030", TSM=64, TSN=64, WPTM=rows, WPTN=columns)
    (own,) = found.codes
    assert own.listing.language == "AMDGCN"
    assert own.counts.kinds[Kind.UNKNOWN] == 0
    assert own.loop_counts.kinds[Kind.FMA] % (rows * columns) == 0
    assert own.loop_counts.multiply_adds_per_word == pytest.approx(rows * columns / (rows + columns), rel=0.2)
    assert found.resources.registers > rows * columns + rows + columns
    assert found.resources.local_bytes == found.launch.local_bytes
    assert found.resources.spill_stores == found.resources.scalar_spills == 0
    assert found.occupancy.groups >= 1


@with_intel_compiler
@pytest.mark.parametrize("arch", ["tgllp", "pvc"])
def test_code_for_intels_gpus_is_read(arch):
    found = inspected("register_tiled", arch, WPTM=4, WPTN=4)
    (own,) = found.codes
    assert own.listing.language == "Gen"
    assert own.counts.kinds[Kind.UNKNOWN] == 0
    assert own.loop_counts.kinds[Kind.FMA] % (4 * 4) == 0
    assert own.loop_counts.multiply_adds_per_word == pytest.approx(16 / 8, rel=0.2)
    assert found.resources.registers in (64, 128)
    assert found.resources.local_bytes == found.launch.local_bytes
    assert found.occupancy is None


def test_without_a_compiler_for_intels_gpus_it_is_said_how_to_get_one(monkeypatch, gemmport_inspect):
    monkeypatch.setattr(_intelgpu, "found", lambda: None)
    status, _, err = gemmport_inspect("naive", "--arch", "dg2")
    assert status == 3
    assert "apt install intel-opencl-icd" in err


@with_amd_compiler
@with_llvm_mca
def test_the_bound_of_a_loop_is_that_of_its_busiest_unit():
    found = inspected("simt", "gfx90a")
    loop = found.codes[-1].loop
    vector = sum(instruction.text.startswith("v_") for instruction in loop)
    assert vector <= found.bound.units["HWVALU"] == found.bound.busiest
    assert found.bound.busiest < found.bound.cycles < found.bound.alone
    rows = {row.name: row.values for row in compare([found])}
    assert rows["at least: its busiest unit"] == (found.bound.busiest,)


@with_amd_compiler
@with_nvdisasm
@with_compiler
def test_architectures_of_two_vendors_stand_side_by_side(gemmport_inspect):
    _, out, _ = gemmport_inspect("tiled", "--arch", "sm_90,gfx90a", "--format", "json")
    nvidia, amds = json.loads(out)["inspections"]
    assert (nvidia["device"]["backend"], amds["device"]["backend"]) == ("cuda", "opencl")
    assert (nvidia["code"][-1]["language"], amds["code"][-1]["language"]) == ("SASS", "AMDGCN")
    assert "v_fma" in gemmport_inspect("tiled", "--arch", "gfx90a", "--show", "loop")[1]


@with_amd_compiler
def test_without_llvm_mca_everything_else_is_told(monkeypatch):
    own = replace(_amdgpu.compiler(), mca=None)
    monkeypatch.setattr(_amdgpu, "compiler", lambda: own)
    found = inspected("naive", "gfx90a")
    assert found.codes
    assert found.bound is None
    assert "apt install llvm" in " ".join(found.notes)


def test_without_a_compiler_for_amds_gpus_it_is_said_how_to_get_one(monkeypatch, gemmport_inspect):
    monkeypatch.setattr(_amdgpu, "found", lambda: None)
    status, _, err = gemmport_inspect("naive", "--arch", "gfx90a")
    assert status == 3
    assert "apt install clang-19 rocm-device-libs" in err


@with_amd_compiler
def test_an_architecture_that_the_compiler_does_not_know_is_told(monkeypatch):
    monkeypatch.setattr(_amdgpu, "knows", lambda name: False)
    with pytest.raises(ToolUnavailableError, match=r"clang.*does not compile for gfx1201.*newer"):
        inspected("naive", "gfx1201")


def test_what_has_no_compiler_of_its_own_is_compiled_on_the_device():
    device = replace(device_of("sm_90"), backend="opencl")
    plan = make_plan(gp.GemmProblem.create(8, 8, 8), device, lookup.load_configuration(), kernel="naive")
    with pytest.raises(
        gp.BackendUnavailableError, match=r"CUDA, and OpenCL for AMD's and Intel's.*got any sm_90 \(opencl"
    ):
        inspect(plan)


# Devices


@pytest.mark.parametrize("kernel", ["tiled", "register_tiled"])
def test_what_a_device_tells_is_read(backend, kernel):
    plan = make_plan(gp.GemmProblem.create(64, 64, 64), backend.device, lookup.load_configuration(), kernel=kernel)
    found = inspect(plan, backend=backend)
    assert found.resources.local_bytes >= found.launch.local_bytes
    x, y, z = found.launch.work_group
    assert found.resources.max_work_items >= x * y * z
    tells = backend.device.platform == "nvidia" or (
        backend.device.platform in ("intel", "pocl") and backend.device.type == "cpu" and shutil.which("objdump")
    )
    if not tells:
        assert found.codes == ()
        assert found.notes
        return
    nearest = found.codes[-1]
    assert [i.text for i in nearest.instructions if i.kind is Kind.UNKNOWN] == []
    assert nearest.loop_counts.kinds[Kind.FMA] > 0
    assert nearest.loop_counts.multiply_adds_per_load > 0


@pytest.mark.parametrize("work_group", [4, 8])
def test_the_code_is_that_of_the_groups_that_are_launched(backend, work_group):
    skip_without(OBJDUMP)
    if backend.device.platform != "pocl":
        pytest.skip(beyond(backend.device, "only PoCL compiles a kernel for its groups at each launch"))
    plan = make_plan(
        gp.GemmProblem.create(32, 32, 32),
        backend.device,
        lookup.load_configuration(),
        kernel="naive",
        params={"TS": work_group},
    )
    found = inspect(plan, backend=backend)
    assert found.launch.work_group == (work_group, work_group, 1)
    assert "_pocl_kernel_naive_workgroup" in found.listings[0].text


def test_objects_in_a_binary_of_pocl_are_found_by_their_groups():
    from gemmport.backends._opencldisassembly import _pocl_objects  # noqa: PLC0415 - PyOpenCL is asked for here alone

    def file(path: str, contents: bytes) -> bytes:
        return b"".join(len(part).to_bytes(4, "little") + part for part in (path.encode(), contents))

    binary = b"poclbin\0" + file("/program.bc", b"IR") + b"".join(
        file(f"/f/{folder}/f.so", folder.encode())
        for folder in ("0-0-0", "8-8-1-goffs0", "8-8-1-goffs0-smallgrid", "8-8-16-goffs0")
    )  # fmt: skip
    assert dict(_pocl_objects(binary, "f", "8-8-1")) == {
        "8-8-1-goffs0": b"8-8-1-goffs0",
        "8-8-1-goffs0-smallgrid": b"8-8-1-goffs0-smallgrid",
    }
    assert dict(_pocl_objects(binary, "g", "8-8-1")) == {}


def test_nvidias_opencl_gives_ptx_and_the_log_of_ptxas(backend, monkeypatch):
    if backend.name != "opencl" or backend.device.platform == "nvidia":
        pytest.skip(beyond(backend.device, "a stand-in for NVIDIA's OpenCL is made of another runtime"))
    plan = make_plan(gp.GemmProblem.create(64, 64, 64), backend.device, lookup.load_configuration(), kernel="naive")
    memory = {operand: backend.allocate(64 * 64 * 4) for operand in ("a", "b", "d")}
    (call,) = bind(plan, backend, memory).calls
    text = ptx_text("fma.rn.f32 %f1, %f2, %f3, %f1", "ret").replace(" f(", " naive(")
    source = call.program.source
    call.program = replace(call.program, binary=text.encode() + b"\0")
    asked: list[tuple[str, ...]] = []

    def build(source: str, *options: str) -> SimpleNamespace:
        asked.append((source, *options))
        return SimpleNamespace(get_build_info=lambda *_: LOG)

    put_on(monkeypatch, backend, "_build", build)
    monkeypatch.setattr(backend, "device", replace(backend.device, platform="nvidia"))
    found = backend.disassemble(call)
    assert [(own.language, own.text) for own in found.listings] == [("PTX", text)]
    assert (found.resources.registers, found.resources.spill_loads, found.resources.local_bytes) == (255, 96, 8192)
    assert found.resources.max_work_items >= 1
    ((compiled, *options),) = asked
    assert "-cl-nv-verbose" in options
    assert compiled.startswith(source)
    assert compiled != source  # what the driver has cached comes without its log
    backend.disassemble(call)
    assert asked[1] != asked[0]
    put_on(monkeypatch, backend, "_build", lambda *_: SimpleNamespace(get_build_info=lambda *_: ""))
    silent = backend.disassemble(call).resources
    assert silent.registers is None
    assert silent.local_bytes is not None


# Side by side


@with_compiler
def test_kernels_are_compared_in_the_language_that_both_have(monkeypatch):
    left, right = inspected("tiled"), inspected("register_tiled")
    monkeypatch.setattr(_machinecode, "nvdisasm", lambda: None)
    only_ptx = inspected("tiled")
    rows = compare([left, right])
    assert {row.section for row in rows} >= {"resources"}
    sections = {row.section for row in compare([only_ptx, right])}
    assert sections == {"resources", "whole kernel, PTX", "loop with the most multiply-adds, PTX"}
    assert headings([left, right]) == ["tiled", "register_tiled"]


@with_compiler
def test_a_kernel_is_told_from_itself_by_what_differs():
    eight, sixteen = inspected("register_tiled", TSK=8), inspected("register_tiled", TSK=16)
    assert headings([eight, sixteen]) == ["register_tiled TSK=8", "register_tiled TSK=16"]
    assert headings([eight]) == ["register_tiled"]
    assert headings([eight, inspected("register_tiled", "sm_80", TSK=8)]) == [
        "register_tiled sm_90",
        "register_tiled sm_80",
    ]


def test_a_difference_is_of_two_numbers():
    assert Row("", "", (3, 5)).difference == 2
    assert Row("", "", (3.5, 1)).difference == -2.5
    assert Row("", "", (3, None)).difference is None
    assert Row("", "", ("a", "b")).difference is None
    assert Row("", "", (1,)).difference is None


# The command


@pytest.fixture
def gemmport_inspect(monkeypatch, capfd):
    """Runs `gemmport inspect`; gives (exit status, standard output, standard error)."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["gemmport", "inspect", *map(str, arguments)])
        capfd.readouterr()
        status = cli._run_command()
        captured = capfd.readouterr()
        assert "Traceback" not in captured.err + captured.out
        return status, captured.out, captured.err

    return run


@with_compiler
def test_what_stands_around_the_table_ends_between_words_on_a_terminal(gemmport_inspect, monkeypatch):
    whole = gemmport_inspect("tiled", "--arch", "sm_90")[1]
    monkeypatch.setattr(streams, "terminal_width", lambda: 80)
    narrow = gemmport_inspect("tiled", "--arch", "sm_90")[1]
    assert any(len(line) > 80 for line in whole.splitlines())
    assert all(len(line) <= 80 for line in narrow.splitlines())
    assert narrow.split() == whole.split()


@with_compiler
def test_the_table_has_resources_counts_and_the_loop(gemmport_inspect):
    status, out, _ = gemmport_inspect("register_tiled", "--arch", "sm_90")
    assert status == 0
    for text in ("register_tiled TSM=", "registers of a work-item", "occupancy", "whole kernel", "fused multiply-adds",
                 "loop with the most multiply-adds", "multiply-adds per load", "counted in the text"):  # fmt: skip
        assert text in out
    assert "difference" not in out


@with_compiler
def test_two_kernels_stand_side_by_side(gemmport_inspect):
    status, out, _ = gemmport_inspect(
        "tiled", "register_tiled", "--arch", "sm_90", "--set", "TSK=16", "--format", "json"
    )
    assert status == 0
    document = json.loads(out)
    assert document["schema"] == 1
    tiled, register_tiled = document["inspections"]
    assert (tiled["kernel"], register_tiled["kernel"]) == ("tiled", "register_tiled")
    assert register_tiled["parameters"]["TSK"] == 16
    _, table, _ = gemmport_inspect("tiled", "register_tiled", "--arch", "sm_90")
    assert "difference" in table
    registers = [own["resources"]["registers"] for own in (tiled, register_tiled)]
    assert registers[1] > registers[0]


@with_compiler
def test_values_in_twos_are_left_and_right(gemmport_inspect):
    _, out, _ = gemmport_inspect(
        "register_tiled", "--arch", "sm_80,sm_90", "--set", "TSK=8,16", "--dtype", "float32,float64", "--format", "json"
    )
    told = [
        (own["device"]["architecture"], own["parameters"]["TSK"], own["problem"]["dtype"])
        for own in json.loads(out)["inspections"]
    ]
    assert told == [("sm_80", 8, "float32"), ("sm_90", 16, "float64")]


@with_compiler
def test_an_architecture_stands_beside_a_device_of_this_machine(gemmport_inspect, backend):
    if backend.name == "cuda":
        pytest.skip(beyond(backend.device, "both sides would be CUDA"))
    _, out, _ = gemmport_inspect(
        "tiled", "--backend", f"cuda,{backend.name}", "--arch", "sm_90", "--device", backend.device.selector,
        "--size", 32, "--format", "json",
    )  # fmt: skip
    told = [own["device"]["name"] for own in json.loads(out)["inspections"]]
    assert told == ["any sm_90", backend.device.name]


@with_compiler
def test_json_tells_what_is_documented(gemmport_inspect):
    _, out, _ = gemmport_inspect("naive", "--arch", "sm_90", "--format", "json")
    (own,) = json.loads(out)["inspections"]
    assert set(own) == {
        "kernel", "parameters", "entry", "problem", "device", "launch", "resources", "occupancy", "bound", "code", "notes",
    }  # fmt: skip
    (first, *_) = own["code"]
    assert first["language"] == "PTX"
    assert set(first["kernel"]) == {"instructions", "kinds", "accesses", "multiply_adds_per_load"}
    assert first["kernel"]["instructions"] == sum(first["kernel"]["kinds"].values())
    assert first["loop"]["kinds"]["fma"] >= 1
    assert first["loop"]["accesses"][0].items() >= {"verb": "load", "space": "global", "bits": 32}.items()
    text = Path(__file__).parents[2].joinpath("docs", "inspect.md").read_text(encoding="utf-8")
    assert all(f"`{key}`" in text for key in own)


@with_compiler
def test_markdown_has_a_table_for_each_section(gemmport_inspect):
    _, out, _ = gemmport_inspect("naive", "tiled", "--arch", "sm_90", "--format", "markdown")
    heads = [line for line in out.splitlines() if line.endswith("| naive | tiled | difference |")]
    assert [head.split(" | ")[0].lstrip("| ").partition(",")[0] for head in heads] == [
        "resources", "whole kernel", "loop with the most multiply-adds",
    ]  # fmt: skip
    assert all(line.count("|") == 5 for line in out.splitlines() if line.startswith("|"))


@pytest.mark.machine_code
@with_compiler
def test_texts_are_shown(gemmport_inspect, tmp_path):
    assert "#define TS 8\n" in gemmport_inspect("naive", "--arch", "sm_90", "--set", "TS=8", "--show", "source")[1]
    assert ".entry naive" in gemmport_inspect("naive", "--arch", "sm_90", "--show", "ptx")[1]
    loop = gemmport_inspect("naive", "--arch", "sm_90", "--show", "loop")[1]
    assert "fma" in loop.lower()
    assert ".entry" not in loop
    both = gemmport_inspect("naive", "tiled", "--arch", "sm_90", "--show", "ptx")[1]
    assert (
        both.index("==> naive <==")
        < both.index(".entry naive")
        < both.index("==> tiled <==")
        < both.index(".entry tiled")
    )
    target = tmp_path / "naive.ptx"
    status, out, _ = gemmport_inspect("naive", "--arch", "sm_90", "--show", "ptx", "--output", target)
    assert (status, out) == (0, "")
    assert ".entry naive" in target.read_text(encoding="utf-8")


@with_compiler
@with_nvdisasm
def test_sass_is_shown(gemmport_inspect):
    text = gemmport_inspect("naive", "--arch", "sm_90", "--show", "sass")[1]
    assert "FFMA" in text
    assert "EXIT" in text
    assert gemmport_inspect("naive", "--arch", "sm_90", "--show", "asm")[1] == text


def test_the_command_inspects_a_device_of_this_machine(gemmport_inspect, backend):
    status, out, _ = gemmport_inspect(
        "tiled", "--backend", backend.name, "--device", backend.device.selector, "--size", 32
    )
    assert status == 0
    assert backend.device.label in out
    assert "local memory of a group" in out


FAULTS = [
    (["naive", "tiled", "naive", "--arch", "sm_90"], 2, "at most two kernels"),
    (["naive", "--arch", "sm_90", "--set", "TS=4,8,16"], 2, "--set TS= has 3 values"),
    (["naive", "--arch", "sm_90", "--backend", "opencl"], 2, "--arch sm_90 is of cuda"),
    (["naive", "--arch", "gfx90a", "--backend", "cuda"], 2, "--arch gfx90a is of opencl"),
    (["naive", "--arch", "sm_90", "--device", "0:0"], 2, "leave out --device"),
    (["naive", "--arch", "sm_42"], 3, "sm_42"),
    (["naive", "--arch", "sm_90", "--show", "ptx", "--format", "json"], 2, "--format"),
    (["naive", "--arch", "sm_90", "--set", "TSK=8"], 2, "no such parameter"),
    (["naive", "--arch", "sm_90", "--set", "TS"], 2, "NAME=VALUE"),
    (["naive", "--arch", "sm_90", "-m", "0"], 2, "launches nothing"),
    (["naive", "--arch", "sm_90", "--launch", "2"], 2, "no launch 2"),
    (["nothing", "--arch", "sm_90"], 2, "no kernel 'nothing'"),
    (["naive", "--arch", "sm_90", "--output", "/no/such/folder/x"], 2, "--output"),
    ([], 2, "KERNEL"),
]


@pytest.mark.parametrize(
    ("arguments", "status", "message"), FAULTS, ids=lambda value: " ".join(value) if isinstance(value, list) else None
)
def test_faults_are_told(gemmport_inspect, arguments, status, message):
    found = gemmport_inspect(*arguments)
    assert found[0] == status
    assert message in found[2]


def test_without_a_gpu_it_is_said_that_none_is_needed(gemmport_inspect):
    if found := backend_status("cuda").devices:
        pytest.skip(beyond(found[0], "it is a GPU"))
    status, _, err = gemmport_inspect("naive", "--backend", "cuda")
    assert status == 3
    assert "--arch sm_90" in err
