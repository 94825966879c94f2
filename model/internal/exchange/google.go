package exchange

import (
	"encoding/json"
	"strings"
	"time"
)

// quotaOfDay is the code of a failure for which waiting does not help soon: what
// may be used in a day is used up, or nothing may be used.
const quotaOfDay = "quota_of_day"

// google adds what Google's services say beside the message: a status in capital
// letters, and details of several kinds.
func (f *failure) google(status string, details json.RawMessage) {
	if f.kind == "" && status != "" && status == strings.ToUpper(status) {
		f.kind = status
	}
	var list []json.RawMessage
	if json.Unmarshal(details, &list) != nil {
		return
	}
	for _, raw := range list {
		var d struct {
			Reason     string `json:"reason"`     // of an ErrorInfo
			RetryDelay string `json:"retryDelay"` // of a RetryInfo, such as "34.07s"
			Violations []struct {
				QuotaID    string `json:"quotaId"`
				QuotaValue string `json:"quotaValue"`
			} `json:"violations"` // of a QuotaFailure
		}
		if json.Unmarshal(raw, &d) != nil {
			continue
		}
		if delay, err := time.ParseDuration(d.RetryDelay); err == nil {
			f.retry = min(max(delay, 0), maxRetryAfter)
		}
		if d.Reason != "" && f.code != quotaOfDay {
			f.code = d.Reason
		}
		for _, v := range d.Violations {
			if strings.Contains(v.QuotaID, "PerDay") || v.QuotaValue == "0" {
				f.code = quotaOfDay
			}
		}
	}
}
