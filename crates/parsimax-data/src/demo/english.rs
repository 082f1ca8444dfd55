//! English verbs: regular ones by rule, irregular ones by list.

/// Lemma, past tense, past participle.
const IRREGULAR: &str = "
arise arose arisen|awake awoke awoken|bear bore borne|beat beat beaten|become became become|begin began begun
bend bent bent|bind bound bound|bite bit bitten|bleed bled bled|blow blew blown|break broke broken
breed bred bred|bring brought brought|build built built|buy bought bought|catch caught caught
choose chose chosen|cling clung clung|come came come|creep crept crept|cut cut cut|deal dealt dealt|dig dug dug
draw drew drawn|drink drank drunk|drive drove driven|eat ate eaten|fall fell fallen|feed fed fed|feel felt felt
fight fought fought|find found found|flee fled fled|fling flung flung|fly flew flown|forbid forbade forbidden
forget forgot forgotten|forgive forgave forgiven|freeze froze frozen|get got got|give gave given|go went gone
grind ground ground|grow grew grown|hang hung hung|hear heard heard|hide hid hidden|hit hit hit|hold held held
hurt hurt hurt|keep kept kept|know knew known|lay laid laid|lead led led|leave left left|lend lent lent|let let let
light lit lit|lose lost lost|make made made|mean meant meant|meet met met|mistake mistook mistaken
overcome overcame overcome|pay paid paid|put put put|read read read|ride rode ridden|ring rang rung|rise rose risen
run ran run|say said said|see saw seen|seek sought sought|sell sold sold|send sent sent|set set set
shake shook shaken|shine shone shone|shoot shot shot|show showed shown|shrink shrank shrunk|shut shut shut
sing sang sung|sink sank sunk|sit sat sat|sleep slept slept|slide slid slid|speak spoke spoken|spend spent spent
spin spun spun|split split split|spread spread spread|spring sprang sprung|stand stood stood|steal stole stolen
stick stuck stuck|sting stung stung|strike struck struck|string strung strung|swear swore sworn|sweep swept swept
swim swam swum|swing swung swung|take took taken|teach taught taught|tear tore torn|tell told told
think thought thought|throw threw thrown|understand understood understood|undertake undertook undertaken
wake woke woken|wear wore worn|weave wove woven|weep wept wept|win won won|wind wound wound
withdraw withdrew withdrawn|withstand withstood withstood|wring wrung wrung|write wrote written";

/// Verbs that double their last consonant.
const DOUBLING: &str = "
admit ban beg blot chat chop clap commit compel control drag drip drop drum expel fit flap flip grab grin grip hop
hug jog jot knit knot label level map mop nod occur omit pat pedal permit pin plan plod plot plug prefer quiz ram refer regret rip rob
rot rub scan scrub ship shop signal skid skip slam slap slip snap sob step stir stop strap strip stun submit swap tap throb
tip transfer trap travel trim trip trot tug wag whip wrap zip";

/// Everything else follows the spelling.
const REGULAR: &str = "
accept ache act add admire adopt advise agree aim allow amaze amuse announce annoy answer appear apply approve argue
arrange arrest arrive ask attach attack attempt attend avoid bake balance bark bathe behave belong blame bless blink
boil borrow bounce bow brush bury call camp care carry carve cause challenge change charge chase cheat check cheer
chew claim clean clear climb close coach collect colour comb compare compete complain complete concern confess
confuse connect consider consist contain continue copy correct cough count cover crack crash crawl cross crush cry
curl curve cycle damage dance dare decay decide decorate delay delight deliver depend describe deserve destroy
detect develop disagree disappear discover dislike divide doubt dream dress dry dust earn echo educate embarrass
employ empty encourage end enjoy enter entertain escape examine excite excuse exercise exist expand expect explain
explode extend face fade fail fancy fasten fax fear fetch file fill film fire fix float flood flow fold follow fool
force form found frame fry gather gaze glow glue grate greet groan guarantee guard guess guide hand handle happen
harass hate haunt heal heat help hook hope hover hunt hurry identify ignore imagine impress improve include increase
influence inform inject injure instruct intend interest interfere invent invite itch jail joke judge juggle jump
kick kill kiss kneel knock land last laugh launch learn lick like list listen live load lock long look
love manage march mark marry match mate matter measure melt mend miss mix moan move muddle multiply murder nail name
need nest note notice number obey object observe obtain offer open order owe own pack paddle paint park part pass
paste pause peck peel peep perform phone pick pinch place plant play point poke polish pop possess post pour
practise pray preach present preserve press pretend prevent prick print produce promise protect provide pull pump
punch punish push question queue race rain raise reach realise receive recognise record reduce reflect refuse reign
reject rejoice relax release rely remain remember remind remove repair repeat replace reply report reproduce request
rescue retire return rhyme rinse risk roll ruin rule rush sail satisfy save scare scatter scold scorch scrape scratch
scream screw seal search separate serve settle share shave shelter shiver shock shrug sigh sign sip smash
smell smile smoke snatch sneeze sniff snore snow soak soothe sound spare spark sparkle spell spill spoil spot spray
sprout squash squeak squeal squeeze stain stamp stare start stay steer stitch store strengthen stretch stroke stuff
subtract succeed suck suffer suggest suit supply support suppose surprise surround suspect suspend switch talk tame
taste tease telephone tempt terrify test thank thaw tick tickle tie time tire touch tour tow trace trade train 
treat tremble trick trouble trust try tumble turn twist type undress unite unlock unpack use vanish visit wail wait
walk wander want warm warn wash waste watch water wave weigh welcome whine whirl whisper whistle wink wipe wish
wobble wonder work worry wrestle wriggle yawn yell";

/// A verb with its forms.
pub(super) struct Verb {
    pub(super) lemma: &'static str,
    past: String,
    participle: String,
    doubles: bool,
    pub(super) is_regular: bool,
}

impl Verb {
    /// The four forms that differ from the lemma, with their tags.
    pub(super) fn forms(&self) -> [(String, &'static str); 4] {
        [
            (third_person(self.lemma), "V;3;SG;PRS"),
            (self.past.clone(), "V;PST"),
            (self.participle.clone(), "V;V.PTCP;PST"),
            (present_participle(self.lemma, self.doubles), "V;V.PTCP;PRS"),
        ]
    }
}

/// All verbs, irregular ones first.
pub(super) fn verbs() -> Vec<Verb> {
    let irregular = IRREGULAR.split(['|', '\n']).filter_map(|entry| {
        let mut words = entry.split_whitespace();
        let (lemma, past, participle) = (words.next()?, words.next()?, words.next()?);
        // A stressed syllable with one vowel and one consonant doubles, in all irregular verbs of the list.
        let doubles = has_short_end(lemma);
        Some(Verb { lemma, past: past.into(), participle: participle.into(), doubles, is_regular: false })
    });
    let by_rule = |lemma: &'static str, doubles: bool| {
        let past = past(lemma, doubles);
        Verb { lemma, participle: past.clone(), past, doubles, is_regular: true }
    };
    let doubling = DOUBLING.split_whitespace().map(|lemma| by_rule(lemma, true));
    let regular = REGULAR.split_whitespace().map(|lemma| by_rule(lemma, false));
    irregular.chain(doubling).chain(regular).collect()
}

fn is_vowel(c: char) -> bool {
    "aeiou".contains(c)
}

/// Consonant, vowel, consonant other than w, x, y at the end: begin, forget, run.
fn has_short_end(lemma: &str) -> bool {
    let end: Vec<char> = lemma.chars().rev().take(3).collect();
    match end[..] {
        [last, vowel, before] => !is_vowel(last) && !"wxyr".contains(last) && is_vowel(vowel) && !is_vowel(before),
        _ => false,
    }
}

/// Consonant and y at the end: the stem without y.
fn without_y(lemma: &str) -> Option<&str> {
    lemma.strip_suffix('y').filter(|stem| stem.chars().last().is_some_and(|c| !is_vowel(c)))
}

fn doubled(lemma: &str) -> String {
    let last = lemma.chars().last().unwrap_or_default();
    format!("{lemma}{last}")
}

fn third_person(lemma: &str) -> String {
    if let Some(stem) = without_y(lemma) {
        return format!("{stem}ies");
    }
    let hisses = ["s", "sh", "ch", "x", "z", "o"].iter().any(|end| lemma.ends_with(end));
    match lemma {
        "quiz" => "quizzes".into(),
        _ if hisses => format!("{lemma}es"),
        _ => format!("{lemma}s"),
    }
}

fn past(lemma: &str, doubles: bool) -> String {
    if doubles {
        return format!("{}ed", doubled(lemma));
    }
    if let Some(stem) = without_y(lemma) {
        return format!("{stem}ied");
    }
    if lemma.ends_with('e') { format!("{lemma}d") } else { format!("{lemma}ed") }
}

fn present_participle(lemma: &str, doubles: bool) -> String {
    if doubles {
        return format!("{}ing", doubled(lemma));
    }
    if let Some(stem) = lemma.strip_suffix("ie") {
        return format!("{stem}ying");
    }
    match lemma.strip_suffix('e') {
        Some(stem) if !lemma.ends_with("ee") && !lemma.ends_with("oe") && !lemma.ends_with("ye") => {
            format!("{stem}ing")
        }
        _ => format!("{lemma}ing"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forms(lemma: &str) -> Vec<String> {
        let verb = verbs().into_iter().find(|v| v.lemma == lemma).expect("in the list");
        verb.forms().into_iter().map(|(form, _)| form).collect()
    }

    #[test]
    fn spelling_follows_the_rules() {
        for (lemma, expected) in [
            ("walk", ["walks", "walked", "walked", "walking"]),
            ("carry", ["carries", "carried", "carried", "carrying"]),
            ("play", ["plays", "played", "played", "playing"]),
            ("bake", ["bakes", "baked", "baked", "baking"]),
            ("tie", ["ties", "tied", "tied", "tying"]),
            ("agree", ["agrees", "agreed", "agreed", "agreeing"]),
            ("fix", ["fixes", "fixed", "fixed", "fixing"]),
            ("echo", ["echoes", "echoed", "echoed", "echoing"]),
            ("stop", ["stops", "stopped", "stopped", "stopping"]),
            ("quiz", ["quizzes", "quizzed", "quizzed", "quizzing"]),
            ("open", ["opens", "opened", "opened", "opening"]),
            ("begin", ["begins", "began", "begun", "beginning"]),
            ("write", ["writes", "wrote", "written", "writing"]),
            ("see", ["sees", "saw", "seen", "seeing"]),
            ("wear", ["wears", "wore", "worn", "wearing"]),
            ("fly", ["flies", "flew", "flown", "flying"]),
            ("draw", ["draws", "drew", "drawn", "drawing"]),
        ] {
            assert_eq!(forms(lemma), expected, "{lemma}");
        }
    }

    #[test]
    fn no_verb_is_listed_twice() {
        let mut lemmas: Vec<&str> = verbs().iter().map(|v| v.lemma).collect();
        let count = lemmas.len();
        lemmas.sort_unstable();
        lemmas.dedup();
        assert_eq!(lemmas.len(), count);
        assert!(count > 600, "{count}");
    }
}
