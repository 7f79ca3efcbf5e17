//go:build !noasm

package kernel

import (
	"github.com/klauspost/cpuid/v2"
	"golang.org/x/sys/cpu"
)

//go:generate go run -C _gen . -out ../kernel_amd64.s -stubs ../stubs_amd64.go -pkg kernel

var (
	withAVX2 = implementation{
		name:           "avx2",
		lanes:          8,
		columns:        64,
		fewest:         8,
		numbers:        1,
		listsFloat32:   sumListsFloat32AVX2,
		listsFloat16:   sumListsFloat16AVX2,
		listsBFloat16:  sumListsBFloat16AVX2,
		scaleFloat32:   scaleFloat32AVX2,
		scaleFloat16:   scaleFloat16AVX2,
		scaleBFloat16:  scaleBFloat16AVX2,
		decodeFloat16:  decodeFloat16AVX2,
		decodeBFloat16: decodeBFloat16AVX2,
		dot:            dotAVX2,
		addScaled:      addScaledAVX2,
		scaled:         scaledAVX2,
		exp:            expAVX2,
		largest:        largestAVX2,
		gather:         gatherAVX2,
		feistel:        feistel,
		gemm:           gemmTile{2, 4, gemm},
	}
	withAVX512 = implementation{
		name:           "avx512",
		lanes:          16,
		columns:        128,
		fewest:         1,
		numbers:        64,
		listsFloat32:   sumListsFloat32AVX512,
		listsFloat16:   sumListsFloat16AVX512,
		listsBFloat16:  sumListsBFloat16AVX512,
		scaleFloat32:   scaleFloat32AVX512,
		scaleFloat16:   scaleFloat16AVX512,
		scaleBFloat16:  scaleBFloat16AVX512,
		decodeFloat16:  decodeFloat16AVX512,
		decodeBFloat16: decodeBFloat16AVX512,
		dot:            dotAVX512,
		addScaled:      addScaledAVX512,
		scaled:         scaledAVX512,
		exp:            expAVX512,
		largest:        largestAVX512,
		gather:         gatherAVX512,
		feistel:        feistelAVX512,
		gemm:           gemmTile{14, 32, gemmAVX512},
	}
)

// available are the implementations that this processor can run, the fastest first.
func available() []*implementation {
	list := []*implementation{&portable}
	if cpu.X86.HasAVX2 && cpuid.CPU.Supports(cpuid.F16C) {
		if cpu.X86.HasFMA {
			withAVX2.gemm = gemmTile{6, 16, gemmAVX2}
		}
		list = append([]*implementation{&withAVX2}, list...)
	}
	if cpu.X86.HasAVX512F && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512BW && cpu.X86.HasBMI2 {
		if cpu.X86.HasAVX512VPCLMULQDQ {
			withAVX512.crc = crcAVX512
		}
		list = append([]*implementation{&withAVX512}, list...)
	}
	return list
}
