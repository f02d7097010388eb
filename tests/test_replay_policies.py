"""Memory policies as text and yml: what they mean, how they are named, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbeval.config import Session, Settings, load_settings
from kbeval.errors import ConfigError
from kbeval.evaluation.replaying.policies import (
    Policy,
    load_policies,
    parse_policy,
    policy_text,
)


@pytest.mark.parametrize(
    ("text", "session", "name"),
    [
        ("none", Session(memory="none"), "none"),
        ("documents", Session(), "documents"),
        ("path", Session(known_by="path"), "path"),
        ("content", Session(known_by="content"), "content"),
        ("primary", Session(mark="primary"), "primary"),
        ("horizon horizon-turns=3", Session(horizon_turns=3), "documents, 3 turns"),
        ("horizon horizon-tokens=900", Session(horizon_tokens=900), "documents, 900 tokens"),
        (
            "content horizon-turns=2 mark=primary",
            Session(known_by="content", horizon_turns=2, mark="primary"),
            "content, primary marked, 2 turns",
        ),
        ("content known-by=version", Session(), "documents"),
        ("hints", Session(), "hints, obeyed 0.5"),
        ("domains obedience=1", Session(), "domains, obeyed 1.0"),
        ("hints memory=none", Session(memory="none"), "hints, no memory, obeyed 0.5"),
    ],
)
def test_a_named_policy_sets_the_whole_memory(text, session, name):
    policy = parse_policy(text, Settings(session=Session(mark="primary", horizon_turns=9)))
    assert (policy.settings.session, policy.name) == (session, name)


def test_thresholds_and_places_beside_the_name_are_those_of_the_policy_the_rest_of_the_base():
    base = load_settings({"retrieval": {"limit": 5, "normalization": {"max-l2-distance": 1.5}}})
    policy = parse_policy("documents reference=0.4 highly-relevant=0.6", base)
    normalization = policy.settings.retrieval.normalization
    assert policy.settings.retrieval.limit == 5
    assert normalization.max_l2_distance == 1.5
    assert (normalization.reference_threshold, normalization.highly_relevant_threshold) == (
        0.4,
        0.6,
    )
    assert policy.name == "documents, highly-relevant 0.6, reference 0.4"


@pytest.mark.parametrize(
    ("text", "obeys", "obedience"),
    [
        ("documents", "nothing", 1.0),
        ("hints", "hints", 0.5),
        ("domains obedience=0.25", "domains", 0.25),
        ("documents obeys=domains", "domains", 0.5),
    ],
)
def test_an_executor_that_obeys_is_part_of_the_policy_not_of_the_tool(text, obeys, obedience):
    policy = parse_policy(text)
    assert (policy.obeys, policy.obedience, policy.settings) == (obeys, obedience, Settings())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "policy '': it is empty; named are none, documents, path, content"),
        ("documnts", "no policy is named 'documnts'; did you mean 'documents'?"),
        ("documents horizon=3", "'horizon=3' is no setting of a policy"),
        ("documents horizon-turns", "allowed are KEY=VALUE with the keys memory, mark"),
        ("horizon", "says no horizon; horizon-turns=N or horizon-tokens=N is needed"),
        ("none mark=all", "remembers nothing, so mark means nothing there"),
        ("hints memory=none horizon-turns=3", "so horizon-turns means nothing there"),
        ("documents reference=x", "reference is 'x'; a number is expected"),
        ("documents horizon-turns=1.5", "horizon-turns is '1.5'; a whole number is expected"),
        ("documents horizon-turns=0", "session.horizon-turns: got 0"),
        ("documents reference=2", "retrieval.normalization.reference-threshold: got 2.0"),
        ("documents reference=0.9", "reference-threshold 0.9 is above"),
        ("documents memory=all", "session.memory: got 'all'"),
        ("documents limit=3 limit=4", "limit is given twice; give it once"),
        ("documents obeys=me", "obeys is 'me'; allowed are nothing, hints, domains"),
        ("documents obedience=0.5", "obeys nothing; obedience needs obeys=hints or domains"),
        ("hints obedience=1.5", "obedience is 1.5; 0 to 1 is allowed"),
        ("hints obedience=nan", "obedience is nan; 0 to 1 is allowed"),
    ],
)
def test_a_text_that_is_no_policy_is_refused_with_the_word_that_is_wrong(text, problem):
    with pytest.raises(ConfigError) as error:
        parse_policy(text)
    assert problem in str(error.value)
    assert repr(text) in str(error.value)
    assert "\n" not in str(error.value)


policies = st.builds(
    lambda kind, words: " ".join([kind, *words]),
    st.sampled_from(["documents", "path", "content", "primary", "hints", "domains"]),
    st.tuples(
        st.sampled_from(["", "horizon-turns=4", "horizon-turns=1"]),
        st.sampled_from(["", "horizon-tokens=700"]),
        st.sampled_from(["", "max-l2-distance=1.25"]),
        st.sampled_from(["", "reference=0.1", "reference=0.123456"]),
        st.sampled_from(["", "limit=1", "limit=7"]),
        st.sampled_from(["", "precise-requires=unique-and-nearest"]),
        st.sampled_from(["", "supplement-content=passage"]),
        st.sampled_from(["", "obeys=hints", "obeys=domains"]),
    ),
)


@given(policies)
def test_the_text_of_a_policy_is_read_back_as_the_same_policy(text):
    policy = parse_policy(text)
    assert parse_policy(policy_text(policy)) == policy


@given(policies, st.sampled_from(["zh", "en"]))
def test_what_a_policy_says_to_paste_makes_the_same_settings(text, locale):
    policy = parse_policy(text, Settings(locale=locale))
    assert load_settings(policy.to_yml()) == policy.settings


def test_what_is_to_be_pasted_names_the_memory_and_what_is_no_default():
    assert parse_policy("documents").to_yml() == {
        "session": {"memory": "documents", "mark": "all", "known-by": "version"}
    }
    assert parse_policy("none").to_yml() == {"session": {"memory": "none"}}
    assert parse_policy("primary horizon-turns=6 reference=0.4").to_yml() == {
        "retrieval": {"normalization": {"reference-threshold": 0.4}},
        "session": {
            "memory": "documents",
            "mark": "primary",
            "known-by": "version",
            "horizon-turns": 6,
        },
    }


def test_by_default_the_memory_is_tried_with_and_without_horizons_and_obedience():
    assert [policy.name for policy in load_policies()] == [
        "none",
        "documents",
        "primary",
        "documents, 8 turns",
        "documents, 4 turns",
        "content",
        "hints, obeyed 0.5",
    ]


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ([], ["none"]),
        (["documents"], ["none", "documents"]),
        (["documents", "none"], ["none", "documents"]),
        (["none reference=0.4"], ["none", "none, reference 0.4"]),
        ({"policies": ["path"]}, ["none", "path"]),
        ({"policies": {"short": "horizon horizon-turns=2"}}, ["none", "short"]),
    ],
)
def test_no_memory_is_always_the_first_policy(source, names):
    assert [policy.name for policy in load_policies(source)] == names


def test_policies_are_read_from_a_yml_file(tmp_path):
    file = tmp_path / "policies.yml"
    file.write_text("policies:\n  short: documents horizon-turns=2\n  plain: documents\n")
    base = Settings(locale="en")
    assert load_policies(file, base) == (
        Policy("none", Settings(locale="en", session=Session(memory="none"))),
        Policy("short", Settings(locale="en", session=Session(horizon_turns=2))),
        Policy("plain", base),
    )


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (["none", "none"], "policies 'none' and 'none' are the same; give each once"),
        (["documents", "documents mark=all"], "are the same; give each once"),
        ({"policies": {"a": "path", "b": "path"}}, "policies 'a' and 'b' are the same"),
        ({"policies": {"x": "none"}}, "policies 'none' and 'x' are the same"),
        ({"policies": {"none": "documents"}}, "two policies are named 'none'"),
        ({"policies": 3}, "policies: got 3; a list of texts is expected"),
        ({"policies": "documents"}, "policies: got 'documents'; a list of texts is expected"),
        ({"policies": None}, "policies: got None; a list of texts is expected"),
        ({"policies": [3]}, "policies: 3 is no policy; a text is expected"),
        ({"policies": {"a": 3}}, "policies: 'a': 3 is no policy; a text is expected"),
        ({"policy": []}, "the keys are policy; the only one allowed is policies"),
        ({}, "the keys are none; the only one allowed is policies"),
    ],
)
def test_a_list_of_policies_that_cannot_be_used_is_refused(source, problem):
    with pytest.raises(ConfigError) as error:
        load_policies(source)
    assert problem in str(error.value)


def test_what_is_wrong_in_a_file_of_policies_is_said_with_the_file(tmp_path):
    file = tmp_path / "policies.yml"
    file.write_text("policies: [documents, horizon]\n")
    with pytest.raises(ConfigError, match=r"policies\.yml: policy 'horizon' says no horizon"):
        load_policies(file)
    with pytest.raises(ConfigError, match="no such file"):
        load_policies(tmp_path / "none.yml")
