package tune

import (
	"maps"
	"math"
	"slices"
)

// Column is a number that models of outcomes read of settings.
type Column struct {
	Setting string  `json:"setting"`
	Place   int     `json:"place"` // of a number in the value; -1: 1 if the rest of the value is Word, else 0
	Word    string  `json:"word,omitempty"`
	Scale   float64 `json:"scale,omitempty"` // above 0: the column is log(1 + number / Scale)
	Low     float64 `json:"low"`             // what is 0 and 1 in rows
	High    float64 `json:"high"`
}

// columns are those of a model, the ones of a setting together.
type columns []Column

// columnsOf are the columns in which some settings differ. A value is taken apart into its numbers, with a column for
// each place, and the rest, with a column for each text that occurs: 10,5 has two numbers, and degree:20MiB one and the
// word degree:MiB. A column whose numbers differ by more than ten times has their logarithms.
func columnsOf(names []string, all []Settings) (found columns) {
	for _, name := range names {
		values, words := map[string][]float64{}, map[string]bool{}
		places := 0
		for _, s := range all {
			value := s[name]
			if _, known := values[value]; !known {
				numbers, word := partsOf(value)
				values[value], words[word] = numbers, true
				places = max(places, len(numbers))
			}
		}
		for place := range places {
			c := Column{Setting: name, Place: place}
			least, most := math.Inf(1), 0.0 // above zero
			for _, numbers := range values {
				if v := numberAt(numbers, place); v > 0 {
					least, most = min(least, v), max(most, v)
				}
			}
			if most > 10*least {
				c.Scale = least
			}
			c.Low, c.High = math.Inf(1), math.Inf(-1)
			for _, numbers := range values {
				v := c.of(numbers, "")
				c.Low, c.High = min(c.Low, v), max(c.High, v)
			}
			if c.Low < c.High {
				found = append(found, c)
			}
		}
		for _, word := range slices.Sorted(maps.Keys(words)) {
			if len(words) > 1 {
				found = append(found, Column{Setting: name, Place: -1, Word: word, High: 1})
			}
		}
	}
	return found
}

func numberAt(numbers []float64, place int) float64 {
	if place < len(numbers) {
		return numbers[place]
	}
	return 0
}

func (c *Column) of(numbers []float64, word string) float64 {
	switch v := numberAt(numbers, max(c.Place, 0)); {
	case c.Place < 0 && word == c.Word:
		return 1
	case c.Place < 0:
		return 0
	case c.Scale > 0:
		return math.Log1p(v / c.Scale)
	default:
		return v
	}
}

// rows have the columns of each of some settings, from 0 to 1 where they are like those that the columns were made for.
func (all columns) rows(settings []Settings) [][]float64 {
	x := make([][]float64, len(settings))
	values := make([]map[string]float64, len(all)) // of each column, by the value of its setting
	for k := range all {
		values[k] = map[string]float64{}
	}
	for i, s := range settings {
		for k := range all {
			c := &all[k]
			v, known := values[k][s[c.Setting]]
			if !known {
				numbers, word := partsOf(s[c.Setting])
				v = (c.of(numbers, word) - c.Low) / (c.High - c.Low)
				values[k][s[c.Setting]] = v
			}
			x[i] = append(x[i], v)
		}
	}
	return x
}
