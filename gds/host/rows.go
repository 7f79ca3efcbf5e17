package host

// The loops over a row of operations that normalise. Four sums at a time keep the adders busy.

// sum4 adds up x.
func sum4(x []float32) float32 {
	var a, b, c, d float32
	for ; len(x) >= 4; x = x[4:] {
		a += x[0]
		b += x[1]
		c += x[2]
		d += x[3]
	}
	for _, v := range x {
		a += v
	}
	return (a + b) + (c + d)
}

// moments are the mean and the variance of x.
func moments(x []float32) (mean, variance float32) {
	if len(x) == 0 {
		return 0, 0
	}
	mean = sum4(x) / float32(len(x))
	var a, b, c, d float32
	rest := x
	for ; len(rest) >= 4; rest = rest[4:] {
		p, q, r, s := rest[0]-mean, rest[1]-mean, rest[2]-mean, rest[3]-mean
		a += float32(p * p)
		b += float32(q * q)
		c += float32(r * r)
		d += float32(s * s)
	}
	for _, v := range rest {
		p := v - mean
		a += float32(p * p)
	}
	return mean, ((a + b) + (c + d)) / float32(len(x))
}

// normalize computes dst = (x - mean) * inverse * gain + shift.
func normalize(dst, x, gain, shift []float32, mean, inverse float32) {
	dst, gain, shift = dst[:len(x)], gain[:len(x)], shift[:len(x)]
	for j, v := range x {
		dst[j] = float32(float32((v-mean)*inverse)*gain[j]) + shift[j]
	}
}

// normalizeGrad is NormalizeRowsGrad of one row. It adds to the sums of grad * normal(x) and of grad.
func normalizeGrad(dst, grad, x, gain []float32, mean, inverse float32, sumNormal, sum []float32) {
	n := len(x)
	dst, grad, gain, sumNormal, sum = dst[:n], grad[:n], gain[:n], sumNormal[:n], sum[:n]
	var ofH, ofNormal float32
	for j, v := range x {
		normal, g := float32((v-mean)*inverse), grad[j]
		h := float32(g * gain[j])
		ofH += h
		ofNormal += float32(h * normal)
		sumNormal[j] += float32(g * normal)
		sum[j] += g
	}
	ofH, ofNormal = ofH/float32(n), ofNormal/float32(n)
	for j, v := range x {
		normal := float32((v - mean) * inverse)
		dst[j] = float32(inverse * (float32(grad[j]*gain[j]) - ofH - float32(normal*ofNormal)))
	}
}
