package memory

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// The corpus of the retrieval test: the notes of an invented shop, as people and
// agents write them, and prompts to which one line of them is the answer. All of it is
// made here from a seed. A note and the prompt for it are written apart, so they share
// some words, some word forms and some names, and no more.

// A question is a prompt with the place of its answer.
type question struct {
	stratum string // such as "prose en": kind of prompt and language of the notes
	prompt  string
	path    string
	line    int
}

// A corpus is a workspace's notes and the questions to them.
type corpus struct {
	files     map[string]string
	questions []question
}

// Prompts of several sentences about the business and about code; short ones, of a few
// words, an identifier or a message; and some with a log before or behind them.
var strata = []string{"prose en", "prose zh", "code en", "code zh", "short en", "short zh", "logs en", "logs zh"}

const questionsEach = 50 // of a stratum; of the last four, half are about code

// An aspect is something that notes say of a part of the shop: {C} is the part, {P} a
// person, {T} a time, {N} a number, {H} a host. In a prompt {Q} is the part, as another
// person calls it. All aspects are in the notes; those that are held out are asked about
// in another run than the others, and no weight was ever chosen by them.
type aspect struct{ notes, prompts, short []string }

// A part has the name that the notes use, and those that prompts use.
type part struct {
	name    string
	prompts []string
}

var partsEN = []part{
	{"billing", []string{"billing", "the billing service", "our invoices"}},
	{"the checkout page", []string{"checkout", "the checkout", "the page where people check out"}},
	{"the search index", []string{"the search", "indexing for search", "the search index"}},
	{"the mail queue", []string{"mailing", "the queue for mails", "the mail queue"}},
	{"the image resizer", []string{"resizing of images", "the image resizer", "resized pictures"}},
	{"the coupon engine", []string{"coupons", "the coupon engine", "coupon handling"}},
	{"the warehouse sync", []string{"syncing with the warehouse", "the warehouse sync", "warehouse synchronisation"}},
	{"the fraud check", []string{"fraud checking", "the fraud check", "fraud detection"}},
	{"the login form", []string{"logging in", "the login", "the login form"}},
	{"the price feed", []string{"the feed of prices", "price feeds", "pricing"}},
	{"the tax table", []string{"taxes", "the tax tables", "the table of taxes"}},
	{"the chat widget", []string{"the chat", "chat widgets", "the widget for chatting"}},
	{"the review form", []string{"reviews", "the form for reviews", "reviewing of articles"}},
	{"the refund flow", []string{"refunding", "refunds", "the refund flow"}},
	{"the wish list", []string{"wish lists", "the wishes of customers", "the wish list"}},
	{"the sitemap", []string{"sitemaps", "the sitemap", "the site map"}},
	{"the audit log", []string{"auditing", "the audit log", "logs for the audit"}},
	{"the label printer", []string{"printing of labels", "labels", "the label printer"}},
	{"the address book", []string{"addresses", "the address book", "address entry"}},
	{"the gift card", []string{"gift cards", "cards for gifts", "the gift card"}},
	{"the stock counter", []string{"counting stock", "stock counts", "the stock counter"}},
	{"the report builder", []string{"reports", "building reports", "the report builder"}},
	{"the session cache", []string{"cached sessions", "the session cache", "session caching"}},
	{"the courier bridge", []string{"couriers", "the courier bridge", "bridging to the courier"}},
}

var aspectsEN = []aspect{
	{
		[]string{"{C} runs its nightly batch at {T}, because the bank closes its gateway before", "nightly batch of {C}: {T}, not earlier, the gateway is closed"},
		[]string{"Move the nightly run of {Q} to another hour if the gateway of the bank allows it.", "When may the batch for {Q} start at night?"},
		[]string{"{Q} nightly batch", "bank gateway {Q}"},
	},
	{
		[]string{"{P} decides about {C}; ask before changing anything visible", "owner of {C} is {P}, who wants to be asked about visible changes"},
		[]string{"I want to change how {Q} looks. Whom do we ask, who owns it?", "Find the owner for {Q} and write a message with the visible changes."},
		[]string{"owner of {C}", "who decides about {Q}"},
	},
	{
		[]string{"{C} was slow in {N} until the missing database index was added; look there first", "slowness of {C} came from a missing index in the database ({N})"},
		[]string{"Customers complain that {Q} is slow again. Look into the database.", "{Q} takes ages since this morning, is it an index that is missing?"},
		[]string{"{Q} slow", "{C} missing index"},
	},
	{
		[]string{"never restart {C} on a Friday: the vendor has no support at weekends", "{C} must not be restarted on Fridays, the vendor's support is away"},
		[]string{"Restart {Q} today, it is Friday and quiet.", "Can you restart {Q} during the weekend? The vendor may have opinions."},
		[]string{"restart {C}", "{Q} Friday restart"},
	},
	{
		[]string{"the contract for {C} ends in {N} and is cancelled by letter", "{C}: contract with the supplier until {N}, cancellation by letter only"},
		[]string{"Write a cancellation for the contract about {Q}.", "Does the contract with our supplier for {Q} end soon?"},
		[]string{"contract for {C}", "{Q} cancellation"},
	},
	{
		[]string{"colours of {C} follow the style guide of {N}, the green is too pale for the contrast test", "{C} fails the contrast test with the pale green of the style guide"},
		[]string{"Check {Q} for accessibility, above all contrast.", "The designers want a paler green for {Q}. Is there anything against that in the style guide?"},
		[]string{"colours of {C}", "{Q} contrast test"},
	},
	{
		[]string{"backups of {C} go to {H} and are kept for {N} days", "{C} is backed up to {H}; we keep {N} days"},
		[]string{"We lost data of {Q}. Where are the backups kept?", "Shorten how many days we keep when backing up {Q}."},
		[]string{"backups of {C}", "{Q} backup host"},
	},
	{
		[]string{"the password of {C} is rotated by {P} each quarter, from the vault", "rotate the credentials of {C} through the vault, each quarter, {P} has the key"},
		[]string{"Rotating the password for {Q} is due this quarter. Prepare it.", "Which vault holds the credentials of {Q}?"},
		[]string{"password of {C}", "rotate {Q} credentials"},
	},
	{
		[]string{"translations of {C} come from an agency, they take {N} days", "{C} is translated by the agency, which needs {N} days"},
		[]string{"We need {Q} in Portuguese. How long does translating take with the agency?", "Plan the translation of {Q}."},
		[]string{"translations of {C}", "{Q} agency"},
	},
	{
		[]string{"{C} must stay below {N} requests a second or the partner throttles us", "the partner throttles {C} beyond {N} requests per second"},
		[]string{"Raise the rate of requests for {Q}; does the partner throttle?", "{Q} answers 429 when throttled. What limit did we agree on?"},
		[]string{"{Q} requests per second", "partner throttles {C}"},
	},
	{
		[]string{"tests of {C} are flaky when the clock is near midnight; freeze the time", "flaky around midnight: the tests of {C}; freeze the clock in them"},
		[]string{"A test of {Q} failed last night and passes now. Find out why it is flaky.", "Tests for {Q} fail around midnight, mend that without sleeping."},
		[]string{"tests of {C}", "{Q} flaky midnight"},
	},
	{
		[]string{"customers in Norway use {C} without VAT, the law of {N} says so", "no VAT in {C} for Norwegian customers, by the law of {N}"},
		[]string{"A customer from Norway complains about VAT in {Q}.", "Is VAT right in {Q} for all countries? Norway looks strange."},
		[]string{"VAT in {C}", "Norway {Q}"},
	},
	{
		[]string{"the migration of {C} to {H} was stopped, since half of the rows had no key", "stopped migrating {C} to {H}: rows without a key"},
		[]string{"Go on with migrating {Q}, and tell me why it was stopped.", "Plan the migration of {Q} to the new machine, mind the keys of the rows."},
		[]string{"migration of {C}", "{Q} rows without key"},
	},
	{
		[]string{"alarms of {C} wake {P} at night; raise the threshold only with a reason in writing", "threshold for alarms of {C} is set by {P}, in writing"},
		[]string{"The alarm for {Q} wakes people each night, set another threshold.", "Too many alarms from {Q}. Tune the thresholds."},
		[]string{"alarms of {C}", "{Q} alarm threshold"},
	},
	{
		[]string{"logs of {C} hold personal data and are deleted after {N} days", "personal data in the logs of {C}: deletion after {N} days"},
		[]string{"Privacy asks how long we log personal data in {Q}.", "Delete personal data from what {Q} logs."},
		[]string{"logs of {C}", "personal data {Q}"},
	},
	{
		[]string{"screenshots of {C} for the manual are made by {P} with a big font", "{P} makes the screenshots of {C} in the manual, big font"},
		[]string{"The manual shows an old {Q}. Make new screenshots.", "Update the manual's chapter about {Q}, pictures with a larger font."},
		[]string{"screenshots of {C}", "{Q} manual"},
	},
}

var heldOutEN = []aspect{
	{
		[]string{"{C} keeps its certificates in the vault, they run out in {N}", "certificates of {C}: from the vault, renewed in {N}"},
		[]string{"Browsers warn about {Q}, is it a certificate that ran out?", "Renew what {Q} needs for TLS before it expires."},
		[]string{"certificates of {C}", "{Q} expired certificate"},
	},
	{
		[]string{"{P} wants {C} covered by a load test of {N} users before each sale", "before a sale {C} gets a load test, {N} users, ask {P}"},
		[]string{"The sale begins soon. Is {Q} ready for the crowd?", "Write the load test for {Q}, as many users as we agreed."},
		[]string{"load test of {C}", "{Q} before a sale"},
	},
	{
		[]string{"the feature flag of {C} lives in {H}, and the default is off", "flag for {C}: on {H}, off by default"},
		[]string{"Turn on {Q} for one customer. Where is the flag?", "Why is {Q} off for new customers? Look for a switch."},
		[]string{"feature flag of {C}", "{Q} flag default"},
	},
	{
		[]string{"{C} rounds amounts half up; accounting rejected banker's rounding in {N}", "amounts in {C} are rounded half up since accounting complained ({N})"},
		[]string{"The sums in {Q} differ by a cent from those of accounting.", "Which way does {Q} round? Use the same in the new report."},
		[]string{"rounding in {C}", "{Q} cent off"},
	},
	{
		[]string{"{C} talks to the old warehouse over FTP; do not modernise it before {N}", "FTP stays in {C} until {N}, the old warehouse has nothing else"},
		[]string{"Replace FTP in {Q} by something modern.", "Uploads of {Q} time out over FTP, shall we use another protocol?"},
		[]string{"FTP {C}", "{Q} upload protocol"},
	},
	{
		[]string{"emails of {C} land in spam unless the sender is {P}'s team address", "sender of mails from {C} must be the team address of {P}, else spam"},
		[]string{"Customers say that what {Q} sends is in their spam folder.", "Change the sender for mails of {Q}."},
		[]string{"spam {C}", "{Q} sender address"},
	},
}

var noiseEN = []string{
	"Please keep the diff small and do not touch anything else.", "Run the tests before you finish and tell me what failed.",
	"We talked about this in the meeting on Monday, but nobody wrote it down.", "It is not urgent, take your time and be careful.",
	"If you are not sure, ask me before you write code.", "Write a short summary at the end, in plain words.",
	"The last attempt was reverted because it broke the build.", "I think there is a note about this somewhere in the repository.",
	"Look at how we did it for {O}, but do not copy it blindly.", "This came up again after we changed {O} last week.",
	"The customer is waiting for an answer, so let us do it today.", "Make sure that the documentation says the same as the code.",
}

var fillerEN = []string{
	"we had a meeting about {C} and decided nothing", "{C} works, nothing to do", "todo: tidy up what is left of {C} after the release",
	"the release of {N} went well, {P} brought cake", "see the old wiki for how {C} came to be", "tests pass again since {N}",
	"keep it simple, the next person has to read it too", "{P} is on holiday until {T}", "the customers of {C} asked for a dark mode",
	"a database is not a queue, a queue is not a database", "errors are for people: say what, why and what to do", "night shift notes of {P}: quiet",
}

var partsZH = []part{
	{"账单服务", []string{"账单", "账单服务", "开账单"}},
	{"结算页面", []string{"结算", "结算页", "结算页面"}},
	{"搜索索引", []string{"搜索", "索引", "搜索索引"}},
	{"邮件队列", []string{"发邮件", "邮件", "邮件队列"}},
	{"图片缩放", []string{"缩放图片", "图片", "图片缩放功能"}},
	{"优惠券引擎", []string{"优惠券", "优惠券引擎", "发放优惠券"}},
	{"仓库同步", []string{"仓库的同步", "同步仓库", "仓库"}},
	{"欺诈检测", []string{"检测欺诈", "欺诈检测", "防欺诈"}},
	{"登录表单", []string{"登录", "登录表单", "用户登录"}},
	{"价格推送", []string{"推送价格", "价格", "价格推送"}},
	{"税率表", []string{"税率", "税率表", "税率的表"}},
	{"聊天窗口", []string{"聊天", "聊天窗口", "在线聊天"}},
	{"评论表单", []string{"评论", "写评论的表单", "商品评论"}},
	{"退款流程", []string{"退款", "退款流程", "给客户退款"}},
	{"心愿单", []string{"心愿单", "客户的心愿单", "心愿"}},
	{"站点地图", []string{"站点地图", "网站地图", "地图文件"}},
	{"审计日志", []string{"审计", "审计日志", "审计用的日志"}},
	{"标签打印机", []string{"打印标签", "标签", "标签打印机"}},
	{"地址簿", []string{"地址簿", "收货地址", "地址"}},
	{"礼品卡", []string{"礼品卡", "礼品", "礼品卡功能"}},
	{"库存计数", []string{"库存", "计算库存", "库存计数"}},
	{"报表生成器", []string{"报表", "生成报表", "报表生成器"}},
	{"会话缓存", []string{"会话缓存", "缓存会话", "会话"}},
	{"快递接口", []string{"快递", "快递接口", "快递公司的接口"}},
}

var aspectsZH = []aspect{
	{
		[]string{"{C}的夜间批处理在{T}开始，因为银行网关之前关闭", "{C}每晚{T}跑批处理，不能提前，网关没开"},
		[]string{"把{Q}的夜间任务换一个时间，看看银行网关允许不允许。", "{Q}的批处理晚上几点可以开始？"},
		[]string{"{Q} 夜间批处理", "{C}的夜间批处理"},
	},
	{
		[]string{"{C}由{P}负责，改动界面之前先问他", "{P}是{C}的负责人，界面改动要先问"},
		[]string{"我想改{Q}的界面，应该先问谁？", "找到{Q}的负责人，把界面的改动写成一条消息。"},
		[]string{"{C}的负责人", "{Q} 谁负责"},
	},
	{
		[]string{"{C}在{N}变慢是因为数据库缺少索引，先查这里", "{C}慢的原因是数据库里少了一个索引（{N}）"},
		[]string{"客户抱怨{Q}又变慢了，查一下数据库。", "{Q}从早上开始很慢，是不是缺少索引？"},
		[]string{"{Q}变慢", "{C} 索引"},
	},
	{
		[]string{"星期五不要重启{C}，供应商周末没有人值班", "{C}不能在星期五重启，周末供应商不在"},
		[]string{"今天星期五比较空，重启一下{Q}。", "周末能不能重启{Q}？供应商那边可能有要求。"},
		[]string{"重启{C}", "{Q} 星期五"},
	},
	{
		[]string{"{C}的合同到{N}为止，只能写信解约", "{C}：与供货方的合同到{N}，解约要书面"},
		[]string{"写一份关于{Q}的解约信，合同快到了。", "{Q}的合同是不是快结束了？"},
		[]string{"{C}的合同", "{Q} 解约"},
	},
	{
		[]string{"{C}的颜色按照{N}年的设计规范，浅绿色通不过对比度测试", "浅绿色让{C}通不过对比度测试，设计规范里有"},
		[]string{"检查{Q}的无障碍，特别是对比度。", "设计师想给{Q}换更浅的绿色，设计规范有没有反对？"},
		[]string{"{C}的颜色", "{Q} 对比度"},
	},
	{
		[]string{"{C}备份到{H}，保留{N}天", "{C}的备份放在{H}，留{N}天"},
		[]string{"{Q}的数据丢了，备份放在哪里？", "缩短{Q}备份保留的天数。"},
		[]string{"{C}的备份", "{Q} 备份"},
	},
	{
		[]string{"{C}的密码每季度由{P}从保险库轮换", "通过保险库轮换{C}的凭据，每季度一次，钥匙在{P}那里"},
		[]string{"这个季度该轮换{Q}的密码了，准备一下。", "{Q}的凭据放在哪个保险库？"},
		[]string{"{C}的密码", "{Q} 凭据轮换"},
	},
	{
		[]string{"{C}的翻译由翻译公司做，需要{N}天", "翻译公司翻译{C}要{N}天"},
		[]string{"{Q}需要葡萄牙语，翻译公司要多久？", "安排一下{Q}的翻译工作。"},
		[]string{"{C}的翻译", "{Q} 翻译公司"},
	},
	{
		[]string{"{C}每秒不能超过{N}个请求，否则合作方限流", "合作方对{C}超过每秒{N}个请求就限流"},
		[]string{"提高{Q}的请求频率，合作方会不会限流？", "{Q}被限流返回429，我们约定的上限是多少？"},
		[]string{"{Q} 限流", "{C} 合作方"},
	},
	{
		[]string{"{C}的测试在午夜前后不稳定，要固定时钟", "午夜附近不稳定的是{C}的测试，把时间固定住"},
		[]string{"{Q}有个测试昨晚失败现在又通过，查一下为什么不稳定。", "{Q}的测试在午夜前后失败，修好它，不要用等待。"},
		[]string{"{C}的测试", "{Q} 午夜"},
	},
	{
		[]string{"挪威客户使用{C}不收增值税，{N}年的法律规定", "{C}对挪威客户没有增值税，依据{N}年的法律"},
		[]string{"一位挪威客户投诉{Q}里的增值税。", "{Q}的增值税在所有国家都对吗？挪威看起来奇怪。"},
		[]string{"{C} 增值税", "挪威客户 {Q}"},
	},
	{
		[]string{"{C}迁移到{H}被停止，因为一半的行没有主键", "停止了{C}向{H}的迁移：有的行缺主键"},
		[]string{"继续迁移{Q}，并说明当时为什么停止。", "计划把{Q}迁移到新机器，注意行的主键。"},
		[]string{"{C}的迁移", "{Q} 主键"},
	},
	{
		[]string{"{C}的告警半夜会吵醒{P}，提高阈值要书面理由", "{C}告警的阈值由{P}书面决定"},
		[]string{"{Q}的告警每晚吵醒人，换一个阈值。", "{Q}的告警太多了，调整阈值。"},
		[]string{"{C}的告警", "{Q} 阈值"},
	},
	{
		[]string{"{C}的日志含有个人数据，{N}天后删除", "个人数据在{C}的日志里，{N}天以后要删除"},
		[]string{"隐私部门问{Q}的日志里个人数据保存多久。", "从{Q}的日志里删除个人数据。"},
		[]string{"{C}的日志", "{Q} 个人数据"},
	},
	{
		[]string{"手册里{C}的截图由{P}用大字体制作", "{P}负责手册中{C}的截图，字体要大"},
		[]string{"手册里的{Q}还是旧的，重新做截图。", "更新手册中关于{Q}的一章，图片用更大的字体。"},
		[]string{"{C}的截图", "{Q} 手册"},
	},
}

var heldOutZH = []aspect{
	{
		[]string{"{C}的证书放在保险库里，{N}年到期", "保险库里有{C}的证书，{N}年要更新"},
		[]string{"浏览器对{Q}发出警告，是不是证书过期了？", "在到期之前更新{Q}的证书。"},
		[]string{"{C}的证书", "{Q} 证书过期"},
	},
	{
		[]string{"每次促销之前{P}要求对{C}做{N}个用户的压力测试", "{C}在促销前要做压力测试，{N}个用户，问{P}"},
		[]string{"促销快开始了，{Q}能承受这么多人吗？", "给{Q}写压力测试，用户数按照约定。"},
		[]string{"{C} 压力测试", "促销 {Q}"},
	},
	{
		[]string{"{C}的功能开关在{H}上，默认是关的", "功能开关：{C}在{H}，默认关闭"},
		[]string{"给一个客户打开{Q}，开关在哪里？", "为什么新客户的{Q}是关的？找一下开关。"},
		[]string{"{C}的功能开关", "{Q} 默认关闭"},
	},
	{
		[]string{"{C}的金额四舍五入，财务在{N}年拒绝了银行家舍入", "财务要求{C}里的金额四舍五入（{N}）"},
		[]string{"{Q}的合计和财务差一分钱。", "{Q}是怎么舍入的？新的报告要一样。"},
		[]string{"{C}的金额", "{Q} 舍入"},
	},
	{
		[]string{"{C}和老仓库之间用FTP，{N}年之前不要换", "老仓库只会FTP，所以{C}到{N}年都用它"},
		[]string{"把{Q}里的FTP换成新的协议。", "{Q}上传总是超时，要不要换掉FTP？"},
		[]string{"{C} FTP", "{Q} 上传协议"},
	},
	{
		[]string{"{C}发的邮件会进垃圾箱，除非发件人是{P}的团队地址", "发件人必须是{P}的团队地址，否则{C}的邮件会进垃圾箱"},
		[]string{"客户说{Q}发的邮件都在垃圾箱里。", "换掉{Q}邮件的发件人。"},
		[]string{"{C} 垃圾箱", "{Q} 发件人"},
	},
}

var noiseZH = []string{
	"请尽量少改代码，不要动别的地方。", "完成之前先跑一遍测试，告诉我哪些失败了。", "星期一开会说过这件事，可是没有人记下来。",
	"不着急，慢慢来，小心一点。", "如果不确定，写代码之前先问我。", "最后用简单的话写一个总结。", "上一次的尝试因为弄坏了构建被撤回了。",
	"我记得仓库里某个地方有关于这个的说明。", "参考一下{O}当时的做法，但是不要照抄。", "上周改了{O}以后又出现了这个问题。",
	"客户在等答复，所以今天就做吧。", "文档和代码要说一样的内容。",
}

var fillerZH = []string{
	"开会讨论了{C}，没有决定", "{C}正常，没有要做的事", "待办：发布之后整理{C}剩下的东西", "{N}的发布很顺利，{P}带了蛋糕",
	"{C}的历史见旧的维基", "测试从{N}起又通过了", "保持简单，下一个人还要读", "{P}休假到{T}", "{C}的客户想要深色模式",
	"数据库不是队列，队列也不是数据库", "错误信息是给人看的：说明原因和办法", "{P}的夜班记录：平静",
}

// What notes say of code: {I} is an identifier, {F} a file, {K} a command, {E} an error
// message, {S} a setting. Prompts have {J}, the identifier as another one writes it,
// {G}, the end of the file's path, and {L}, a line of a log with the error.
var codeEN = []aspect{
	{
		[]string{"`{I}` in `{F}` must be called with the lock held, else the race detector complains", "call {I} ({F}) only while you hold the lock"},
		[]string{"Refactor {J} so that it can be used by two goroutines at once.", "There is a data race around {J}:\nWARNING: DATA RACE\nWrite at 0x00c000 by goroutine 7:\n  {G}:88 +0x1d\nMend it."},
		[]string{"{J}", "{G}"},
	},
	{
		[]string{"`{E}` means that `{K}` was not run first", "when you see \"{E}\", run `{K}` and try again"},
		[]string{"The build stops with this:\n\n{L}\n\nWhat is wrong?", "CI is red: {L}. Make it green."},
		[]string{"{E}", "{K}"},
	},
	{
		[]string{"`{S}` must be set before `{K}`, else the fixtures are loaded twice", "set {S}; without it `{K}` loads the fixtures twice"},
		[]string{"Why are the fixtures there twice after I call {K}?", "Explain what {S} is for and whether we can delete it."},
		[]string{"{S}", "{K}"},
	},
	{
		[]string{"{F} is generated by `{K}`, edit the template and not the file", "do not edit `{F}`: `{K}` writes it"},
		[]string{"Rename a field in {G} and adapt the callers.", "{G} has a typo in a comment, correct it and commit."},
		[]string{"{G}", "{K} {G}"},
	},
	{
		[]string{"`{I}` returns {E} for an empty slice, callers rely on that", "callers rely on `{E}` from {I} when the slice is empty"},
		[]string{"{J} should return nil when it gets nothing.", "Users see \"{L}\" when the list is empty; change {J}."},
		[]string{"{J}", "{E}"},
	},
	{
		[]string{"benchmarks of {I} need `{S}=1`, the numbers without it are noise", "`{S}=1` before measuring {I}, else noise"},
		[]string{"Measure {J} and make it twice as fast.", "Write a benchmark for {J} and compare with main."},
		[]string{"{J} benchmark", "{S}"},
	},
	{
		[]string{"`{F}` must not import net/http, the wasm build breaks", "no net/http in {F}: it breaks wasm"},
		[]string{"Add a retrying HTTP client to {G}.", "Fetch the list over HTTP from within {G}."},
		[]string{"{G} net/http", "{G}"},
	},
	{
		[]string{"deprecated: {I}, remove it when {S} is gone from the config", "{I} goes away together with the setting `{S}`"},
		[]string{"Remove deprecated code, begin with {J}.", "Clean up settings that nobody uses, {S} for instance."},
		[]string{"{J}", "{S}"},
	},
}

var heldOutCodeEN = []aspect{
	{
		[]string{"`{I}` is called by the release script too, keep its signature", "the release script calls {I}: do not change its signature"},
		[]string{"Give {J} another parameter for the deadline.", "Simplify the arguments of {J} in {G}."},
		[]string{"{J}", "{J} signature"},
	},
	{
		[]string{"`{E}` in CI comes from a full disk on the runner, run `{K}` again", "a full disk on the runner shows as \"{E}\""},
		[]string{"The pipeline broke with {L}. Find the cause.", "What does this mean?\n{L}"},
		[]string{"{E}", "{K}"},
	},
	{
		[]string{"`{F}` is copied into the docs by `{K}`, mind its comments", "comments of {F} are published, `{K}` copies them"},
		[]string{"Tidy up the comments in {G}.", "Translate what stands in {G} into plain English."},
		[]string{"{G}", "{K}"},
	},
	{
		[]string{"with `{S}=0` {I} skips the retry, handy in tests", "{I} does not retry when {S} is 0"},
		[]string{"Tests of {J} are slow because of retrying.", "Is there a way to turn off the retry in {J}?"},
		[]string{"{J} retry", "{S}"},
	},
}

var codeZH = []aspect{
	{
		[]string{"调用 `{I}`（{F}）必须持有锁，否则竞态检测会报错", "只有持有锁的时候才能调用 {I}，见 `{F}`"},
		[]string{"重构 {J}，让两个 goroutine 可以同时使用。", "{J} 附近有数据竞态：\nWARNING: DATA RACE\nWrite at 0x00c000 by goroutine 7:\n  {G}:88 +0x1d\n请修复。"},
		[]string{"{J}", "{G}"},
	},
	{
		[]string{"`{E}` 的意思是没有先运行 `{K}`", "看到“{E}”就运行 `{K}` 再试"},
		[]string{"构建停在这里：\n\n{L}\n\n哪里错了？", "CI 红了：{L}。把它修好。"},
		[]string{"{E}", "{K}"},
	},
	{
		[]string{"运行 `{K}` 之前要设置 `{S}`，否则测试数据加载两次", "不设置 {S} 的话 `{K}` 会把测试数据加载两次"},
		[]string{"为什么调用 {K} 之后测试数据出现两次？", "解释 {S} 的用途，能不能删掉？"},
		[]string{"{S}", "{K}"},
	},
	{
		[]string{"{F} 由 `{K}` 生成，要改模板而不是文件", "不要手改 `{F}`，它是 `{K}` 写的"},
		[]string{"把 {G} 里的一个字段改名，并修改调用者。", "{G} 的注释里有错字，改正并提交。"},
		[]string{"{G}", "{K} {G}"},
	},
	{
		[]string{"`{I}` 对空切片返回 {E}，调用者依赖这一点", "切片为空时 {I} 返回 `{E}`，调用者依赖它"},
		[]string{"{J} 没有输入时应该返回 nil。", "列表为空时用户看到“{L}”，修改 {J}。"},
		[]string{"{J}", "{E}"},
	},
	{
		[]string{"测 {I} 的性能要 `{S}=1`，不然数字都是噪声", "性能测试 {I} 之前设置 `{S}=1`，否则是噪声"},
		[]string{"测量 {J} 并让它快一倍。", "给 {J} 写一个性能测试，和主分支比较。"},
		[]string{"{J} 性能", "{S}"},
	},
	{
		[]string{"`{F}` 不能引入 net/http，会弄坏 wasm 构建", "{F} 里不要用 net/http：wasm 会坏"},
		[]string{"在 {G} 里加一个会重试的 HTTP 客户端。", "在 {G} 里通过 HTTP 获取列表。"},
		[]string{"{G} net/http", "{G}"},
	},
	{
		[]string{"{I} 已废弃，等配置里没有 {S} 时删除", "{I} 和设置 `{S}` 一起删除"},
		[]string{"删除废弃的代码，从 {J} 开始。", "清理没有人用的设置，比如 {S}。"},
		[]string{"{J}", "{S}"},
	},
}

var heldOutCodeZH = []aspect{
	{
		[]string{"发布脚本也调用 `{I}`，不要改它的参数", "{I} 被发布脚本调用：保持参数不变"},
		[]string{"给 {J} 加一个截止时间的参数。", "简化 {G} 里 {J} 的参数。"},
		[]string{"{J}", "{J} 参数"},
	},
	{
		[]string{"CI 里的 `{E}` 是因为磁盘满了，再运行一次 `{K}`", "磁盘满的时候会出现“{E}”"},
		[]string{"流水线坏了：{L}。找出原因。", "这是什么意思？\n{L}"},
		[]string{"{E}", "{K}"},
	},
	{
		[]string{"`{K}` 会把 `{F}` 复制到文档里，注意注释", "{F} 的注释会被 `{K}` 公开"},
		[]string{"整理 {G} 里的注释。", "把 {G} 里写的内容改成简单的英文。"},
		[]string{"{G}", "{K}"},
	},
	{
		[]string{"`{S}=0` 时 {I} 不重试，测试里很方便", "{S} 为 0 的话 {I} 就不重试"},
		[]string{"{J} 的测试因为重试很慢。", "有没有办法关掉 {J} 的重试？"},
		[]string{"{J} 重试", "{S}"},
	},
}

var (
	codeVerbs = strings.Fields("parse load merge flush encode rotate claim verify split resolve drain publish")
	codeNouns = strings.Fields("token ledger batch order cursor header bundle ticket shard digest lease quota invoice route frame")
	codeTails = strings.Fields("store pool queue cache writer table worker index")
	logged    = []string{"request served", "cache hit", "backup finished", "queue drained", "connection reset by peer, retrying", "threshold not reached", "index refreshed", "password accepted", "nightly batch scheduled", "rows migrated", "certificate loaded", "mail sent"}
	people    = strings.Fields("Ana Boris Chidi Dalia Emeka Fatou Goran Hiro Ines Jonas Kemal Lucia")
	peopleZH  = strings.Fields("王芳 李强 张敏 刘洋 陈静 杨磊 赵丽 黄涛 周杰 吴霞")
)

// A writer makes a corpus.
type writer struct {
	*rand.Rand
	lines   map[string][]string // by file
	heldOut bool
	out     corpus
}

// newCorpus makes notes, and questions either about the aspects that are held out or
// about the others.
func newCorpus(seed uint64, heldOut bool) corpus {
	w := &writer{Rand: rand.New(rand.NewPCG(seed, 5)), lines: map[string][]string{}, heldOut: heldOut}
	w.out.files = map[string]string{}
	w.prose("en", partsEN, aspectsEN, heldOutEN, noiseEN, fillerEN, people)
	w.prose("zh", partsZH, aspectsZH, heldOutZH, noiseZH, fillerZH, peopleZH)
	w.code("en", codeEN, heldOutCodeEN, partsEN, noiseEN)
	w.code("zh", codeZH, heldOutCodeZH, partsZH, noiseZH)
	for name, lines := range w.lines {
		w.out.files[name] = strings.Join(lines, "\n") + "\n"
	}
	return w.out
}

func pick[T any](r *rand.Rand, list []T) T { return list[r.IntN(len(list))] }

// fill puts values into a text.
func (w *writer) fill(text string, names []string, more ...string) string {
	pairs := append(more,
		"{P}", pick(w.Rand, names), "{T}", fmt.Sprintf("%02d:%02d", w.IntN(24), 5*w.IntN(12)),
		"{N}", fmt.Sprint(pick(w.Rand, []int{2019, 2021, 2023, 14, 30, 45, 60, 90, 250})), "{H}", fmt.Sprintf("host-%d.example", w.IntN(40)))
	return strings.NewReplacer(pairs...).Replace(text)
}

// note adds a line and gives where it stands.
func (w *writer) note(file, text string) int {
	w.lines[file] = append(w.lines[file], text)
	return len(w.lines[file])
}

// bullet gives a text as people write it: with a mark, a date, a full stop, or not.
func (w *writer) bullet(text string) string {
	if w.IntN(2) == 0 {
		text = title(text)
	}
	switch w.IntN(4) {
	case 0:
		return "- " + text
	case 1:
		return fmt.Sprintf("- 202%d-%02d-%02d %s", 3+w.IntN(4), 1+w.IntN(11), 1+w.IntN(28), text)
	case 2:
		return "* " + text + "."
	}
	return text + "."
}

// prompt puts noise around what is asked.
func (w *writer) prompt(ask string, noise []string, parts []part) string {
	list := []string{ask}
	for range 2 + w.IntN(3) {
		other := pick(w.Rand, pick(w.Rand, parts).prompts)
		list = append(list, strings.ReplaceAll(pick(w.Rand, noise), "{O}", other))
	}
	w.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return strings.Join(list, " ")
}

// prose writes a file for every few parts: a section for each with all that is to be
// known of it. One of four lines leaves the part to its heading.
func (w *writer) prose(lang string, parts []part, tuned, heldOut []aspect, noise, filler, names []string) {
	var long, short, logs []question
	aspects := slices.Concat(tuned, heldOut)
	pronoun := map[string]string{"en": "this", "zh": "它"}[lang]
	for i, p := range parts {
		file := fmt.Sprintf("memory/%s-%d.md", lang, i/4)
		w.note(file, "")
		w.note(file, "## "+p.name)
		for _, k := range w.Perm(len(aspects)) {
			a, called := aspects[k], p.name
			for range w.IntN(3) {
				w.note(file, w.bullet(w.fill(pick(w.Rand, filler), names, "{C}", pick(w.Rand, parts).name)))
			}
			if w.IntN(4) == 0 {
				called = pronoun
			}
			line := w.note(file, w.bullet(w.fill(pick(w.Rand, a.notes), names, "{C}", called)))
			if w.heldOut != (k >= len(tuned)) {
				continue
			}
			ask := func(texts []string) string {
				return w.fill(pick(w.Rand, texts), names, "{C}", p.name, "{Q}", pick(w.Rand, p.prompts))
			}
			long = append(long, question{"prose " + lang, w.prompt(ask(a.prompts), noise, parts), file, line})
			short = append(short, question{"short " + lang, ask(a.short), file, line})
			logs = append(logs, question{"logs " + lang, w.withLog(w.prompt(ask(a.prompts), noise, parts), ""), file, line})
		}
	}
	w.choose(long, questionsEach)
	w.choose(short, questionsEach/2)
	w.choose(logs, questionsEach/2)
}

// choose takes some of the questions.
func (w *writer) choose(list []question, n int) {
	w.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	w.out.questions = append(w.out.questions, list[:n]...)
}

// withLog puts a log of eighty lines before or behind a prompt. One line of it is that
// of the failure, if there is one.
func (w *writer) withLog(prompt, failure string) string {
	var list []string
	for range 80 {
		service := strings.ReplaceAll(strings.TrimPrefix(pick(w.Rand, partsEN).name, "the "), " ", "-")
		at := fmt.Sprintf("2026-11-22T03:%02d:%02d.%03dZ", w.IntN(60), w.IntN(60), w.IntN(1000))
		switch w.IntN(4) {
		case 0:
			list = append(list, fmt.Sprintf("\t/src/internal/%s/%s_%s.go:%d +0x%x", pick(w.Rand, codeNouns), pick(w.Rand, codeVerbs), pick(w.Rand, codeTails), w.IntN(900), w.IntN(4096)))
		default:
			list = append(list, fmt.Sprintf("%s INFO 10.0.%d.%d:%d [worker-%d] %s: %s id=%08x", at, w.IntN(9), w.IntN(255), 1024+w.IntN(9000), w.IntN(8), service, pick(w.Rand, logged), w.Uint32()))
		}
	}
	if failure != "" {
		list[20+w.IntN(40)] = failure
	}
	if text := strings.Join(list, "\n"); w.IntN(2) == 0 {
		return prompt + "\n\n" + text + "\n"
	} else {
		return text + "\n\n" + prompt
	}
}

// code writes lines about names that are alike: each verb with each noun.
func (w *writer) code(lang string, tuned, heldOut []aspect, parts []part, noise []string) {
	var long, short, logs []question
	aspects := slices.Concat(tuned, heldOut)
	for i, verb := range codeVerbs {
		file := fmt.Sprintf("memory/code-%s-%d.md", lang, i/3)
		if i == 0 {
			file = "MEMORY.md"
		}
		for _, noun := range codeNouns {
			tail := pick(w.Rand, codeTails)
			path := fmt.Sprintf("internal/%s/%s_%s.go", noun, verb, tail)
			failure := pick(w.Rand, []string{"%s %s: no %s", "cannot %s %s: %s is closed", "%s: bad %s in %s"})
			failure = fmt.Sprintf(failure, verb, noun, tail)
			values := func(identifier, path, failure string) []string {
				return []string{
					"{I}", identifier, "{J}", identifier, "{F}", path, "{G}", path, "{E}", failure, "{L}", failure,
					"{K}", "make " + verb + "-" + noun, "{S}", strings.ToUpper(noun + "_" + tail + "_" + verb),
				}
			}
			written := verb + title(noun) + title(tail)
			k := w.IntN(len(aspects))
			a := aspects[k]
			line := w.note(file, w.bullet(w.fill(pick(w.Rand, a.notes), people, values(written, path, failure)...)))
			if w.IntN(3) == 0 {
				w.note(file, w.bullet(w.fill(pick(w.Rand, map[string][]string{"en": fillerEN, "zh": fillerZH}[lang]), people, "{C}", "`"+noun+title(tail)+"`")))
			}
			if w.heldOut != (k >= len(tuned)) {
				continue
			}
			called := pick(w.Rand, []string{written, title(written), verb + "_" + noun + "_" + tail, verb + " " + noun + " " + tail})
			where := pick(w.Rand, []string{path, filepath.Base(path)})
			report := fmt.Sprintf("E1122 03:12:45 main.go:%d] %s (attempt %d)", 10+w.IntN(500), failure, 1+w.IntN(5))
			ask := func(texts []string, failure string) string {
				return w.fill(pick(w.Rand, texts), people, values(called, where, failure)...)
			}
			long = append(long, question{"code " + lang, w.prompt(ask(a.prompts, report), noise, parts), file, line})
			short = append(short, question{"short " + lang, ask(a.short, failure), file, line})
			logs = append(logs, question{"logs " + lang, w.withLog(ask(a.prompts, "main.go"), report), file, line})
		}
	}
	w.choose(long, questionsEach)
	w.choose(short, questionsEach/2)
	w.choose(logs, questionsEach/2)
}

func title(s string) string {
	r, size := utf8.DecodeRuneInString(s)
	return string(unicode.ToUpper(r)) + s[size:]
}

// write makes a workspace of the corpus.
func (c *corpus) write(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "memory"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range c.files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
