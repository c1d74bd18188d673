"""The answer to each question about a word of a made-up sentence follows its grammar."""

import re
from collections import Counter
from random import Random

import pytest

from mha_core.training.language import EVERYDAY, Phrases, parts
from mha_core.training.lexicon import START, lexicon
from mha_core.training.links import BOUNDARY, PARTS, TaggedWord, links

# Templates, and below each one every answer that is a word: "the~2>cat" says that the answer to the question
# about the second "the" is "cat". All other answers are [CLS]. Words without a part of speech have the one
# that the file of the language lists.
SENTENCES = {
    "en": """
subject and object: the dog/noun chased/verb a cat/noun
    noun: the>dog a>cat; doer: chased>dog dog>chased; object: chased>cat cat>chased
passive with by: the mouse/noun was eaten by the cat/noun
    noun: the>mouse the~2>cat by>cat; doer: was>mouse eaten>cat cat>eaten;
    object: eaten>mouse mouse>eaten cat>by
passive behind to: it wanted to be seen by the king
    noun: the>king by>king; doer: wanted>it it>wanted to>it be>it seen>king king>seen; object: seen>it king>by
was …ing is no passive: the dog/noun was eating/verb the soup/noun
    noun: the>dog the~2>soup; doer: was>dog eating>dog dog>eating; object: eating>soup soup>eating
not able to is no passive: the man was not able to lift the box/noun
    noun: the>man the~2>box; doer: was>man able>man to>man lift>man man>lift; object: lift>box box>lift
to before a noun is a preposition: we went to the park
    noun: to>park the>park; doer: went>we we>went; object: park>to
a phrase between the subject and its verb: the man near the park slept
    noun: the>man near>park the~2>park; doer: slept>man man>slept; object: park>near
the subject of the clause about it: the dog/noun ( that/relative slept ) saw me
    noun: the>dog; doer: slept>dog saw>dog dog>saw; object: saw>me
the object of the clause about it: the bread/noun ( that/relative the man bought ) was cold/predicate
    noun: the>bread the~2>man cold>bread; doer: bought>man man>bought was>bread;
    object: bought>bread bread>bought
a clause about the object: we saw the man ( who ate the egg )
    noun: the>man the~2>egg; doer: we>saw saw>we ate>man man>ate; object: saw>man man>saw ate>egg egg>ate
two verbs of one subject, each with an object: the king bought the box/noun and sold the egg
    noun: the>king the~2>box the~3>egg; doer: bought>king king>bought sold>king;
    object: bought>box box>bought sold>egg egg>sold
the subject is not in the sentence before: the king slept . run/verb !
    noun: the>king; doer: slept>king king>slept
two objects, and who receives it: we gave the man an egg
    noun: the>man an>egg; doer: gave>we we>gave; object: gave>man man>gave
an adjective before its noun, and one that is said of it: the old king was late
    noun: the>king old>king late>king; doer: was>king
a very old king: a very old king slept
    noun: a>king old>king; doer: slept>king king>slept
a question: did the man see the park ?
    noun: the>man the~2>park; doer: did>man see>man man>see; object: see>park park>see
a question with who: who saw the king ?
    noun: the>king; doer: saw>who who>saw; object: saw>king king>saw
a question with how: how old is the king ?
    noun: old>king the>king; doer: is>king
do behind what is asked for is no verb: how much bread/noun do you want ?
    noun: much>bread; doer: do>you want>you you>want
have at the end of a question: how many cats do you have ?
    noun: many>cats; doer: do>you have>you you>have
to whom: to whom did you give an egg ?
    noun: to>whom an>egg; doer: did>you give>you you>give; object: give>egg egg>give
the second of two adjectives that are said of it: the king was old and too late
    noun: the>king old>king late>king; doer: was>king
the subject is that of the main clause: we saw the man ( who ate ) and slept
    noun: the>man; doer: we>saw saw>we ate>man man>ate slept>we; object: saw>man man>saw
a clause between commas: the king ( , who was late , ) slept
    noun: the>king late>king; doer: was>king slept>king king>slept
had with an object: she had no dog/noun
    noun: no>dog; doer: had>she she>had; object: had>dog dog>had
nobody is told who should: see the king !
    noun: the>king; object: see>king king>see
""",
    "zh": """
subject and object: 朋友 看见 了 小猫
    doer: 看见>朋友 朋友>看见; object: 看见>小猫 小猫>看见
article, measure word and adjective: 那 条 新 的 鱼 游 了
    noun: 那>鱼 条>鱼 新>鱼; doer: 游>鱼 鱼>游
把: 朋友 把 书 放 在 桌子 上
    noun: 把>书 在>桌子 上>桌子; doer: 放>朋友 朋友>放; object: 放>书 书>放 桌子>在
被: 书 被 朋友 打破 了
    noun: 被>朋友; doer: 打破>朋友 朋友>打破; object: 打破>书 书>打破
被 without anybody: 书 被 打破 了
    object: 打破>书 书>打破
a passive without 被: 书 放/passive_verb 在 桌子 上
    noun: 在>桌子 上>桌子; object: 放>书 书>放 桌子>在
的 between owner and owned: 我 的 书 很 新
    noun: 我>书 新>书
the object is what is owned: 我 看见 了 朋友 的 书
    noun: 朋友>书; doer: 看见>我 我>看见; object: 看见>书 书>看见
a preposition: 朋友 在 城市 里 睡
    noun: 在>城市 里>城市; doer: 睡>朋友 朋友>睡; object: 城市>在
a clause before its noun, which something is done to in it: ( 朋友 买 的 ) 书 很 新
    noun: 新>书; doer: 买>朋友 朋友>买; object: 买>书 书>买
a clause before its noun, which does it: ( 追 小猫 的 ) 马 睡 了
    doer: 追>马 马>睡 睡>马; object: 追>小猫 小猫>追
a clause that is thought: 我 觉得 ( 书 很 新 )
    noun: 新>书; doer: 觉得>我 我>觉得
who gets it: 我 送 给 朋友 书
    noun: 给>朋友; doer: 送>我 我>送; object: 送>书 书>送 朋友>给
who is made to do it: 我 让 朋友 吃 苹果
    doer: 让>我 我>让 吃>朋友 朋友>吃; object: 让>朋友 朋友>让 吃>苹果 苹果>吃
two verbs of one subject: 朋友 跑 ， 然后 睡
    doer: 跑>朋友 朋友>跑 睡>朋友
two clauses side by side: 我 ( 骑 马 ) ( 去 城市 ) 买 书
    doer: 骑>我 去>我 买>我 我>买; object: 骑>马 马>骑 去>城市 城市>去 买>书 书>买
a subject that is left out after a comma: 朋友 睡 ， 也 没有 吃 苹果
    doer: 睡>朋友 朋友>睡 没有>朋友 吃>朋友; object: 吃>苹果 苹果>吃
what is done to the subject is what goes on: 书 被 朋友 打破 了 ， 也 很 新
    noun: 被>朋友 新>书; doer: 打破>朋友 朋友>打破; object: 打破>书 书>打破
a comparison: 马 比 牛 快
    noun: 比>牛 快>马; object: 牛>比
""",
}


def cases() -> list:
    found = []
    for language, table in SENTENCES.items():
        for case in re.split(r"\n(?=\S)", table.strip()):
            head, *lines = case.split("\n")
            name, template = head.split(": ")
            answers = dict(one.split(": ") for one in " ".join(line.strip() for line in lines).split("; "))
            found.append(pytest.param(language, template, answers, id=f"{language}: {name}"))
    return found


@pytest.mark.parametrize(("language", "template", "answers"), cases())
def test_a_template_has_the_links_of_its_grammar_and_no_others(language, template, answers):
    words, _ = Phrases(lexicon(language), EVERYDAY).filled(Random(1), parts(template), {})
    said, seen = [], Counter()
    for word in words:
        seen[word.text] += 1
        said.append(word.text if seen[word.text] == 1 else f"{word.text}~{seen[word.text]}")
    found: dict[str, list[str]] = {}
    for link in links(words):
        found.setdefault(link.question, []).append(f"{said[link.query]}>{said[link.key]}")
    assert {question: sorted(pairs) for question, pairs in found.items()} == {
        question: sorted(pairs.split()) for question, pairs in answers.items()
    }


def test_a_word_alone_and_nothing_at_all_have_no_links():
    assert links([TaggedWord(START, BOUNDARY)]) == []
    for part in PARTS:
        assert links([TaggedWord(START, BOUNDARY), TaggedWord("word", part)]) == []
