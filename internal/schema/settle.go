package schema

import (
	"encoding/json"
	"errors"
	"reflect"
)

// leniency says whose mistakes are corrected.
type leniency bool

const (
	strict  leniency = false
	lenient leniency = true // decode what a model encoded twice
)

const (
	// maxRounds bounds how deep double encoding is followed: each round decodes
	// strings, the next one those that were inside them.
	maxRounds = 4

	// maxRepairs bounds the corrections of one document. One that needs more
	// is not a slip.
	maxRepairs = 256

	tooComplex = "checking this takes too long; make it smaller or less deeply nested"
)

// check applies one node to one value, as part of compiling.
func check(n *node, v *value) error {
	if new(evaluator).check(n, v.clone(), nil, nil, nil) {
		return nil
	}
	return explain(n, v)
}

// verdict reports whether the document fits, and an error if finding out takes
// too long.
func (s *Schema) verdict(doc *document) (bool, error) {
	e := evaluator{}
	ok := e.check(s.root, doc.root, nil, nil, nil)
	if e.exhausted() {
		return false, problem("", tooComplex, "")
	}
	doc.changed = doc.changed || e.changed
	return ok, nil
}

// explain says what is wrong with a value that does not fit.
func explain(n *node, v *value) error {
	var e evaluator
	rep := &report{budget: &e.budget}
	e.check(n, v, nil, rep, nil)
	if rep.total == 0 { // the budget was spent on alternatives
		return problem("", "expected "+describe(n), showGot(v))
	}
	return rep.err()
}

// settle checks the document. One that does not fit is corrected, if the
// correction makes it fit; otherwise it is left alone and the error says what
// is wrong. One that fits is never touched, apart from its defaults.
func (s *Schema) settle(doc *document, l leniency) ([]Repair, error) {
	ok, err := s.verdict(doc)
	if err != nil {
		return nil, err
	}
	var repairs []Repair
	if !ok {
		if repairs, err = s.repair(doc, l); err != nil {
			return nil, err
		}
	}
	if s.defaults {
		f := filler{}
		f.fill(s.root, doc.root, 0)
		doc.changed = doc.changed || f.filled
	}
	return repairs, nil
}

// read settles the document, decodes it unless into is nil, and returns it. Its
// error has all that is wrong, for the schema and for the type. A method of that
// type may panic.
func (s *Schema) read(doc *document, l leniency, into any) (json.RawMessage, []Repair, error) {
	repairs, err := s.settle(doc, l)
	if l == lenient && err == nil && doc.root.kind != object {
		// A schema for something else than an object could let it pass.
		err = problem("", "expected an object with the arguments", showGot(doc.root))
	}
	if err != nil {
		var bad *ValidationError
		if t := reflect.TypeOf(into); t != nil && t.Kind() == reflect.Pointer && errors.As(err, &bad) {
			bad.add(misfits(doc, t.Elem()))
		}
		return nil, nil, err
	}
	clean := doc.bytes()
	if into != nil {
		if err := decode(clean, into); err != nil {
			return nil, nil, err
		}
	}
	return clean, repairs, nil
}

// repair tries the corrections on a copy, and returns them if the copy fits
// then. Otherwise it returns the problems of the document, but does not complain
// about a null that means absent.
func (s *Schema) repair(doc *document, l leniency) ([]Repair, error) {
	trial := &document{root: doc.root.clone(), changed: true}
	repairs, ok, err := s.mend(trial, strict)
	if ok || err != nil {
		return s.accept(doc, trial, repairs, err)
	}
	plain := trial.root
	if l == strict {
		return nil, explain(s.root, plain)
	}
	trial.root = plain.clone()
	for range maxRounds {
		more, ok, err := s.mend(trial, lenient)
		repairs = append(repairs, more...)
		if ok || err != nil {
			return s.accept(doc, trial, repairs, err)
		}
		if len(more) == 0 || len(repairs) > maxRepairs {
			break
		}
	}
	return nil, explain(s.root, plain)
}

// mend corrects a document once and reports whether it fits then.
func (s *Schema) mend(doc *document, l leniency) ([]Repair, bool, error) {
	w := mender{lenient: bool(l)}
	w.mend(demands{{s.root}}, doc.root, nil)
	if len(w.repairs) == 0 || len(w.repairs) > maxRepairs {
		return nil, false, nil
	}
	ok, err := s.verdict(doc)
	return w.repairs, ok, err
}

func (s *Schema) accept(doc, trial *document, repairs []Repair, err error) ([]Repair, error) {
	if err != nil {
		return nil, err
	}
	*doc = document{root: trial.root, text: doc.text, broken: doc.broken, changed: true}
	return repairs, nil
}

// filler gives absent properties their defaults. It looks through references
// and allOf, but not into alternatives, where it is open which one applies.
type filler struct{ filled bool }

func (f *filler) fill(n *node, v *value, level int) {
	if level > maxInPlace {
		return
	}
	if n.ref != nil {
		f.fill(n.ref, v, level+1)
	}
	for _, sub := range n.allOf {
		f.fill(sub, v, level+1)
	}
	switch v.kind {
	case object:
		for _, name := range n.order {
			sub := n.props[name]
			if member := v.get(name); member != nil {
				f.fill(sub, member, 0)
			} else if sub.preset != nil {
				v.set(name, sub.preset.clone())
				f.filled = true
			}
		}
		if n.additional != nil {
			for i, key := range v.keys {
				if n.props[key] == nil {
					f.fill(n.additional, v.items[i], 0)
				}
			}
		}
	case array:
		for i, item := range v.items {
			if i < len(n.prefixItems) {
				f.fill(n.prefixItems[i], item, 0)
			} else if n.items != nil {
				f.fill(n.items, item, 0)
			}
		}
	}
}
