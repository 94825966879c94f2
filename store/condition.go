package store

// CheckCondition returns a *ConditionError if the condition of a does not hold.
// The uid is that of the existing instance, or empty if there is none.
func (a *Admission) CheckCondition(uid string) error {
	switch {
	case uid == "" && (a.Birth == nil || a.Condition.UID != ""):
		return &ConditionError{Address: a.Address}
	case uid != "" && (a.Condition.Create || a.Condition.UID != "" && a.Condition.UID != uid):
		return &ConditionError{Address: a.Address, Exists: true, UID: uid}
	}
	return nil
}
