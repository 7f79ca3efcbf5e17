package trainer

import (
	"fmt"
	"math"
)

// MetricText prints the value of a metric, "-" for none.
func MetricText(metric string, value *float64) string {
	if value != nil && LowerIsBetter(metric) {
		return LossText(*value)
	}
	return Percent(value)
}

// Percent prints a fraction of 1, "-" for none.
func Percent(p *float64) string {
	if p == nil || math.IsNaN(*p) {
		return "-"
	}
	return fmt.Sprintf("%.2f %%", 100**p)
}

// LossText is a loss with four decimals, or, if it is large, with six digits.
func LossText(loss float64) string {
	if math.Abs(loss) < 1000 {
		return fmt.Sprintf("%.4f", loss)
	}
	return fmt.Sprintf("%.6g", loss)
}
