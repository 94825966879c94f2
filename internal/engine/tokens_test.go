package engine

import (
	"strings"
	"testing"

	"github.com/flue-go/flue/journal"
	"github.com/flue-go/flue/model"
)

// What real vocabularies make of these texts lies between the bounds, and so must
// the estimate.
func TestTextTokens(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		least      int // what OpenAI's newest vocabulary counts, or the mean of three where that is far lower
		most       int
	}{
		{"nothing", "", 0, 0},
		{"a word", "word", 1, 1},
		{"English", "The order was shipped yesterday and should arrive on Friday morning.", 12, 20},
		{"German", "Überprüfen Sie bitte den Zustand Ihres Kontos und benachrichtigen Sie uns, falls etwas nicht stimmt.", 24, 40},
		{"Russian", "Заказ был отправлен вчера вечером и должен прибыть в пятницу утром.", 16, 50},
		{"Japanese", "ご注文の商品は昨日発送されました。", 11, 24},
		{"Chinese", "运行时会在每次模型调用之前运行智能体函数。", 12, 30},
		{"Arabic", "تم إرسال طلبك مساء أمس ومن المتوقع أن يصل صباح يوم الجمعة.", 15, 75},
		{"code", "func (d *driver) tokens() int {\n\treturn d.fixed() + d.weight\n}\n", 18, 36},
		{"JSON", `{"id":42,"status":"shipped","items":[1,2,3]}`, 18, 40},
		{"a UUID", "0b14f5c3-4a3e-4d0b-9d0e-6a1f1f7d2f10", 20, 40},
		{"base64", "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk", 32, 70},
		{"white space", strings.Repeat(" ", 400), 1, 60},
		{"half a character", "\xff\xfe\x80", 1, 30},
	} {
		if got := textTokens(tt.text); got < tt.least || got > tt.most {
			t.Errorf("%s: %d tokens, want %d to %d", tt.name, got, tt.least, tt.most)
		}
	}
}

// The defaults are upstream's, fitted to small models.
func TestBudget(t *testing.T) {
	for _, tt := range []struct {
		settings *journal.Compaction
		info     model.Info
		reserve  int
		limit    int
	}{
		{nil, model.Info{ContextWindow: 200_000, MaxOutput: 64_000}, 20_000, 180_000},
		{nil, model.Info{ContextWindow: 200_000, MaxOutput: 8_192}, 8_192, 191_808},
		{nil, model.Info{ContextWindow: 128_000}, 20_000, 108_000},
		{nil, model.Info{ContextWindow: 32_768}, 10_922, 21_846},
		{nil, model.Info{ContextWindow: 2_000, MaxOutput: 1_500}, 1_000, 1_000},
		{nil, model.Info{}, 20_000, 0},
		{&journal.Compaction{ReserveTokens: 50_000}, model.Info{ContextWindow: 200_000}, 50_000, 150_000},
		{&journal.Compaction{ReserveTokens: 500_000}, model.Info{ContextWindow: 200_000}, 20_000, 180_000},
	} {
		b := budgetOf(tt.settings, tt.info)
		if b.reserve != tt.reserve || b.limit() != tt.limit || b.keep != 8_000 {
			t.Errorf("%+v, %+v: %+v, limit %d; want a reserve of %d and a limit of %d", tt.settings, tt.info, b, b.limit(), tt.reserve, tt.limit)
		}
	}
}

// Any text can be cut, to about the tokens, on both sides of its middle and
// between characters.
func FuzzCutMiddle(f *testing.F) {
	f.Add("hello", 3)
	f.Add(strings.Repeat("😀é", 500), 60)
	f.Add(strings.Repeat("lorem ipsum ", 500), 100)
	f.Fuzz(func(t *testing.T, text string, tokens int) {
		tokens = min(max(tokens, 0), 10_000)
		got := cutMiddle(text, tokens, leftOutResult)
		if textTokens(text) <= tokens && got != text {
			t.Error("a text that fits is cut")
		}
		if most := max(tokens, textTokens(leftOutResult)+30); textTokens(got) > most && got != text {
			t.Errorf("%d tokens, want at most %d", textTokens(got), most)
		}
		if strings.ToValidUTF8(text, "") == text && strings.ToValidUTF8(got, "") != got {
			t.Error("a character is cut")
		}
	})
}
