"""Ways in which a patch fails people, what prevents or finds each, and the tests that show it.

Each happened to somebody; the report is named as ``project#number``. ``docs/protections.md`` is written from this.
"""

from __future__ import annotations

from typing import NamedTuple


class Story(NamedTuple):
    """``told`` is what happens, ``reports`` where it was reported, ``how`` what prevents or finds it, ``tests`` are
    paths below ``tests`` with the test's name, as pytest spells them."""

    number: int
    told: str
    reports: str
    how: str
    tests: tuple[str, ...]


KINDS = {
    1: "A patch that does nothing, and nobody notices",
    10: "The wrong copy",
    16: "After the image has moved",
    24: "Twice, half, or in the wrong order",
    28: "Bytes, caches, permissions",
    33: "Many machines, architectures, compose",
}

_MAIN = "e2e/test_main_job.py::"
_NO = "e2e/test_refusals.py::"
_RUNNING = "e2e/test_containers.py::"
_DOCTOR = "doctor/test_checks_on_real_containers.py::"
_HERE = "stories/test_on_real_containers.py::"
_CLASSIFY = "diff/test_classify.py::"
_SERIES = "diff/test_series.py::"
_GUARD = "guard/test_guard.py::"
_BOOT = "guard/test_guard_engine.py::"

STORIES = (
    Story(
        1,
        "The place that a script looked for had moved in a nightly. It logged success and the file was as before.",
        "genesis-vllm-patches#12",
        "Prevented by `apply`: a hunk has exactly one place, whose distance is told, or nothing is written.",
        (
            f"{_NO}test_a_file_that_moved_by_some_lines_is_patched_at_its_offset_and_told_as_not_listed",
            f"{_NO}test_a_conflict_names_the_hunk_the_line_and_the_next_command",
        ),
    ),
    Story(
        2,
        "Upstream had removed the file that two patches were for; the script warned and ended with 0.",
        "club-3090#1012",
        "Prevented by `apply`: `target-missing`, exit status 1.",
        (f"{_NO}test_a_file_that_is_gone_is_told_as_missing",),
    ),
    Story(
        3,
        "The folder with the patches did not exist on the host; the engine mounted an empty one and none ran.",
        "club-3090#13",
        "Found by `doctor` (`mount-empty`, `mount-source-missing`); prevented by `apply --guard`.",
        (
            f"{_DOCTOR}test_an_empty_folder_in_the_place_of_patches_or_of_a_module_is_found",
            f"{_DOCTOR}test_a_mount_whose_source_is_gone_is_found",
            f"{_BOOT}test_an_empty_folder_in_the_files_place_stops_the_start",
        ),
    ),
    Story(
        4,
        "The patch lay in the repository, and no compose file ever mentioned it.",
        "club-3090#145",
        "Found by `doctor` (`container-undelivered`, with `--compose` also `compose-undelivered`, `compose-unwired`).",
        (
            f"{_DOCTOR}test_what_patches_are_for_and_nobody_delivered_is_found",
            f"{_DOCTOR}test_a_compose_project_that_wires_none_of_it_is_found",
        ),
    ),
    Story(
        5,
        "A dry run that failed was read as `already applied`, and the step was skipped with status 0.",
        "ServerlessLLM's patch script on vLLM 0.9.2 and 0.11.0",
        "Prevented by `apply` and `patch`: `applied` needs every hunk's new side in its place, or the file's hash.",
        (
            f"{_CLASSIFY}test_the_same_fix_in_another_place_does_not_prove_that_it_is_there",
            f"{_CLASSIFY}test_one_conflict_refuses_the_whole_patch",
            f"{_NO}test_a_half_taken_patch_is_partial_and_refused",
        ),
    ),
    Story(
        6,
        "Servers started without their patches since the share that held them could not be read at that moment.",
        "Hyperloom#516",
        "Found by `doctor` and `verify --container`; prevented by `apply --guard`, and by a derived image.",
        (
            f"{_DOCTOR}test_a_container_of_the_unpatched_image_is_found",
            f"{_DOCTOR}test_a_container_that_was_started_without_the_mounts_is_found",
            f"{_BOOT}test_a_file_that_the_user_cannot_read_stops_the_start",
        ),
    ),
    Story(
        7,
        "`patch --forward ... || true` put in two thirds of a series, and the rest was missed for days.",
        "syv-ai's series of 13 patches",
        "Prevented by `apply`: the whole series or nothing.",
        (
            f"{_SERIES}test_one_patch_that_does_not_apply_refuses_the_whole_series",
            f"{_NO}test_a_half_taken_patch_is_partial_and_refused",
        ),
    ),
    Story(
        8,
        "The file was mounted onto the other of two copies: it loads, looks fine, and fails far away.",
        "the write-up on Intel XPU that this project started from",
        "Prevented by `apply`, which resolves as the server does; found by `doctor --compose` and `lint`.",
        (
            f"{_MAIN}test_the_decoy_is_reported_and_untouched",
            f"{_DOCTOR}test_a_project_that_mounts_onto_a_decoy_is_found",
            "stack/lint/test_lint.py::test_a_mount_onto_a_decoy_is_an_error",
        ),
    ),
    Story(
        9,
        "The patched file was made anew while the container ran; a mount of a file keeps the old inode, also over a "
        "restart.",
        "moby#15793, moby#22627",
        "Found by `verify --container` and `doctor` (`mount-wrong`, `process-older`).",
        (
            f"{_RUNNING}test_a_mounted_file_that_was_replaced_on_the_host_is_found_by_its_inode",
            f"{_RUNNING}test_patching_a_running_container_without_a_restart_says_that_its_processes_are_older",
            f"{_DOCTOR}test_processes_that_are_older_than_the_patch_are_found",
        ),
    ),
    Story(
        10,
        '`python -c "import vllm"` names one folder, and the server loads another.',
        "b70_ai_things",
        "Prevented by `apply`: it resolves under the launch that serves, and `resolve` tells which launch takes which.",
        (
            "site/test_facts_images.py::test_the_copy_that_serves_is_named",
            f"{_HERE}test_the_copy_that_this_launch_imports_is_the_one_that_is_patched",
        ),
    ),
    Story(
        11,
        "The copy that the orchestrator imports was patched, not the one in the environment that serves.",
        "Hyperloom#1521",
        "Prevented by `apply`: the interpreter of the launch decides, and the other copies are told.",
        (f"{_HERE}test_the_copy_that_this_launch_imports_is_the_one_that_is_patched",),
    ),
    Story(
        12,
        "`pip show` named site-packages while an editable checkout was live.",
        "gpustack/runner#179",
        "Prevented by `apply`: editable finders and `.pth` files are followed.",
        (
            f"{_MAIN}test_every_layout_is_patched_where_it_serves",
            "site/test_copies.py::test_an_editable_install_is_one_with_its_sources_version",
        ),
    ),
    Story(
        13,
        "A folder of the package's name in the working folder was taken for a namespace package.",
        "vllm-ascend#725, vllm#2236",
        "Prevented by `apply`, which refuses, and by the guard; told by `resolve`.",
        (
            f"{_HERE}test_a_folder_that_shadows_the_package_is_no_place_to_patch",
            f"{_BOOT}test_a_working_folder_that_shadows_is_seen_for_a_module_launch",
        ),
    ),
    Story(
        14,
        "The path to dist-packages was written into a script; the next image had a virtual environment.",
        "spark-vllm-docker",
        "Prevented by `apply`: patches name paths within the package, the place is found anew in each image.",
        (f"{_MAIN}test_every_layout_is_patched_where_it_serves",),
    ),
    Story(
        15,
        "The environment's python was a link into /root, where the container's user may not go.",
        "vllm#15359",
        "Prevented by `apply`, whose proof runs as that user; found by `doctor --image` (`interpreter-closed`).",
        (f"{_HERE}test_an_interpreter_that_the_user_may_not_reach_is_found_before_anybody_starts_it",),
    ),
    Story(
        16,
        "The tag moved, and whole-file overlays silently took back hundreds of upstream's lines.",
        "club-3090 (218 lines on 0.27.1, 722 on 0.33.0)",
        "Found by `doctor` (`tag-moved`, `mount-hides-other`), prevented by the guard; `import` finds such overlays.",
        (
            f"{_DOCTOR}test_a_tag_that_moved_since_apply_is_found",
            f"{_DOCTOR}test_a_mount_over_a_newer_image_is_found_by_its_record",
            f"{_GUARD}test_a_nightly_that_moved_under_the_mount_stops_the_start",
            "e2e/test_life.py::test_a_full_file_overlay_made_from_an_old_release_is_found_out",
        ),
    ),
    Story(
        17,
        "One hunk failed on a nightly, and `set -e` then kept out a second patch that was still good.",
        "spark-vllm-docker#344",
        "Told by `status` patch by patch; `apply --only` takes those that fit.",
        (f"{_NO}test_the_other_patches_can_be_applied_alone",),
    ),
    Story(
        18,
        "Upstream took half of a patch, and the tool called the file patched.",
        "gpustack on SGLang 0.5.6 (1 of 3 hunks), TraceLens on vLLM 0.27.1 (8 of 9)",
        "Prevented by `apply`: `partial k/n` is refused; `rebase` carries the rest over.",
        (
            f"{_NO}test_a_half_taken_patch_is_partial_and_refused",
            "lifecycle/test_rebase.py::test_half_of_a_fix_is_partial_and_the_rest_is_carried",
        ),
    ),
    Story(
        19,
        "A version number was believed to hold a fix of which it had the settings only.",
        "Hyperloom#1157",
        "Prevented by `status`: bytes and conditions on the source decide, versions advise.",
        (
            "catalog/test_condition.py::test_a_call_condition_needs_the_function_and_no_mention_of_the_name",
            "catalog/test_variants.py::test_the_pre_image_decides_against_the_version",
            f"{_MAIN}test_a_nightly_version_string_stops_nothing",
        ),
    ),
    Story(
        20,
        "A pull request's diff changed tests that no wheel installs, and the build failed.",
        "spark-vllm-docker#167",
        "Prevented by `import`: files that are not installed are told apart.",
        ("lifecycle/test_importing.py::test_files_of_no_installation_are_told_apart",),
    ),
    Story(
        21,
        "A pinned nightly vanished from its registry, and the overlays did not fit those beside it.",
        "club-3090",
        "A derived image holds its origin's layers; `doctor` notes it (`origin-gone`); `rebase` makes a variant.",
        (
            f"{_HERE}test_a_patched_image_outlives_its_origin",
            "e2e/test_life.py::test_a_change_made_on_an_old_release_is_surveyed_and_carried_over_to_the_newest",
        ),
    ),
    Story(
        22,
        "It applied, and was no Python any more: upstream had added the same keyword two lines above.",
        "llm-scaler's diff on vLLM 0.24 to 0.27",
        "Prevented by `apply`: every result is compiled before anything is written.",
        (
            f"{_NO}test_a_result_that_is_no_python_is_refused_with_its_line",
            "diff/test_check.py::test_a_keyword_given_twice_is_found_though_it_parses",
        ),
    ),
    Story(
        23,
        "A patched module imported a name that the newer image had moved.",
        "club-3090#144",
        "Found by the proof of `apply` at `imports`, exit status 1.",
        (
            f"{_HERE}test_a_patch_that_imports_what_is_not_there_fails_at_its_proof",
            "proof/test_judge.py::test_a_name_that_moved_fails",
        ),
    ),
    Story(
        24,
        "`sed` in the entrypoint ran again with each restart, until a keyword stood there twice.",
        "ODS#58",
        "Prevented: nothing is edited at start, and a second `apply` has nothing to do.",
        (
            f"{_MAIN}test_a_second_run_gives_the_same_image_and_the_same_files",
            f"{_HERE}test_a_restart_changes_nothing",
            "diff/test_properties.py::test_applying_twice_says_applied_and_changes_nothing",
        ),
    ),
    Story(
        25,
        "`patch --batch` took the fix out again at the second start.",
        "app-grocy#560",
        "Prevented: `apply` never goes backwards by itself; only `revert` does.",
        (
            f"{_HERE}test_a_restart_changes_nothing",
            "diff/test_properties.py::test_applying_twice_says_applied_and_changes_nothing",
        ),
    ),
    Story(
        26,
        "Two mechanisms patched one file, and the second wrote over the first.",
        "NeMo-RL#4155",
        "Found by `doctor` (`mount-wrong`, `container-not-proven`); `compose` refuses a mount over a patched file.",
        (
            f"{_DOCTOR}test_a_second_mount_over_the_patched_file_is_found",
            f"{_DOCTOR}test_a_file_that_somebody_wrote_over_is_found",
            "stack/test_compose_command.py::test_a_mount_over_a_patched_file_is_refused_before_anything_is_written",
        ),
    ),
    Story(
        27,
        "Patches that fail one by one apply in their order: nobody had written the order down.",
        "syv-ai's series",
        "Prevented: a manifest is an ordered series, and each patch is judged on what those before it made.",
        (
            f"{_SERIES}test_later_patches_see_earlier_ones_results",
            f"{_SERIES}test_a_series_in_the_wrong_order_does_not_apply",
        ),
    ),
    Story(
        28,
        "The file was new, its time was the old one, and the old compiled file ran.",
        "syv-ai, cpython#121376",
        "Prevented by `apply`: other times, no old compiled files. Found by `verify` and `doctor` (`bytecode-stale`).",
        (
            f"{_HERE}test_compiled_files_of_any_kind_do_not_run_instead_of_the_patch",
            f"{_DOCTOR}test_bytecode_that_runs_instead_of_the_patched_source_is_found",
            "proof/test_prove.py::test_stale_bytecode_fails",
            "proof/test_prove.py::test_bytecode_that_is_never_checked_fails",
        ),
    ),
    Story(
        29,
        "A cache of compiled kernels served the old kernel to the patched server.",
        "club-3090#548, vllm-ascend#15188",
        "Prevented by `compose`, which names caches after the fingerprint; found by `doctor` (`compile-cache-older`).",
        (
            f"{_DOCTOR}test_a_compile_cache_from_before_is_found_unless_its_name_tells_the_fingerprint",
            "stack/test_compose_command.py::test_compiled_kernels_get_folders_of_their_own_unless_told_not_to",
        ),
    ),
    Story(
        30,
        "Git for Windows changed the line ends of the patches, and their hashes did not hold.",
        "intel-arc-pro-b70-inference-cookbook#3",
        "Prevented: such a patch is read as it was meant, and a file keeps its own line ends.",
        (
            f"{_CLASSIFY}test_an_lf_file_under_a_patch_turned_crlf_on_the_way_stays_lf",
            f"{_CLASSIFY}test_a_crlf_file_under_an_lf_patch_keeps_crlf",
        ),
    ),
    Story(
        31,
        "A file that was a hard link to a package cache was edited in place: every environment changed.",
        "uv#15700",
        "Prevented: files are replaced, never edited; `doctor` tells of shared ones (`file-shared`, `package-linked`).",
        (
            f"{_HERE}test_the_other_names_of_a_hard_linked_file_keep_their_bytes",
            "deliver/test_tree.py::test_a_hard_link_is_broken_and_its_other_name_keeps_the_old_text",
            f"{_DOCTOR}test_a_package_that_is_a_link_is_told",
        ),
    ),
    Story(
        32,
        "A second patcher failed on a read-only mount; another crashed on a read-only root with nothing left to do.",
        "club-3090#120, NeMo-RL#3913",
        "Found by `doctor` (`second-patcher`); delivery, proof and guard write nothing inside at start.",
        (
            f"{_DOCTOR}test_a_second_patcher_that_met_the_read_only_mount_is_found",
            f"{_HERE}test_a_read_only_root_is_proven_like_any_other",
            f"{_BOOT}test_it_starts_as_any_user_and_on_a_read_only_root",
        ),
    ),
    Story(
        33,
        "One of two machines was not patched; to keep them alike was somebody's chore.",
        "choiceoh, spark-vllm-docker",
        "Found by `verify --host A --host B` and `doctor --host A --host B` (`nodes-differ`): one fingerprint for all.",
        (
            f"{_RUNNING}test_the_same_image_is_proven_on_several_engines_at_once_one_line_each",
            "doctor/test_checks_elsewhere.py::test_engines_that_differ_are_found",
        ),
    ),
    Story(
        34,
        "A patched tag for several architectures was for amd64 only afterwards, and lay on the nightly's own tag.",
        "sglang#19025 to #34276",
        "Prevented by `apply`: every platform of an index, and no tag that somebody else holds.",
        (
            "image_stores/test_oci.py::test_an_index_is_patched_on_every_platform_at_once",
            f"{_MAIN}test_the_source_tag_is_never_overwritten_without_being_asked",
            f"{_MAIN}test_a_target_tag_that_holds_somebody_elses_image_is_refused_and_left_alone",
        ),
    ),
    Story(
        35,
        "A line with `#` inside a continued command dropped every flag after it.",
        "the write-up on Intel XPU, gitpod#458",
        "Found and mended by `lint --fix`.",
        (
            "stack/lint/test_lint.py::test_a_comment_in_a_continued_command_loses_the_flags_after_it_and_says_which",
            "stack/lint/test_lint.py::test_fix_moves_the_comment_above_and_bash_then_sees_every_flag",
        ),
    ),
    Story(
        36,
        "Compose took a `$` in an entrypoint for a variable of its own.",
        "club-3090#433",
        "Prevented in every overlay that is written; found by `lint` in a person's own files.",
        (
            "stack/test_overlay.py::test_compose_itself_reads_odd_text_as_it_was_meant",
            "stack/lint/test_lint.py::test_what_compose_makes_of_a_string_is_told",
        ),
    ),
    Story(
        37,
        "A guard in `sitecustomize` raised, and Python started all the same.",
        "blackwell-llm-docker#22",
        "Prevented: the guard is the program that starts the server, and does so only when all holds.",
        (
            f"{_GUARD}test_other_bytes_stop_the_start",
            f"{_GUARD}test_its_own_fault_does_not_start_the_server",
        ),
    ),
)


def protections() -> str:
    """The page of the docs."""
    out = [
        "# What it protects you from",
        "",
        "Each of these happened to somebody who patched Python packages in images by hand; the report is named. With",
        "each stands what makes it impossible or finds it, and the tests that show it.",
    ]
    for story in STORIES:
        if story.number in KINDS:
            out += ["", f"## {KINDS[story.number]}"]
        out += [
            "",
            f"**{story.number}. {story.told}** ({story.reports})",
            "",
            story.how,
            "",
            *(f"- shown by `tests/{test}`" for test in story.tests),
        ]
    return "\n".join([*out, ""])
