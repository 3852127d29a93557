import re

import pytest

from config.settings import SettingsError, fields, load_settings, variable


def test_defaults_need_no_variables() -> None:
    settings = load_settings({"PATH": "/bin"})
    assert settings.server.port == 8000
    assert settings.server.host == "127.0.0.1"
    assert (settings.model.model / "config.json").is_file()


def test_a_variable_overrides_its_field() -> None:
    settings = load_settings(
        {"FOVEA_PORT": "81", "FOVEA_MAX_IMAGES": "3", "FOVEA_DTYPE": "bfloat16"}
    )
    assert settings.server.port == 81
    assert settings.images.max_images == 3
    assert settings.model.dtype == "bfloat16"


def test_a_misspelt_variable_stops_with_the_nearest_name() -> None:
    with pytest.raises(SettingsError, match=r"FOVEA_MAX_IMAGE.*did you mean FOVEA_MAX_IMAGES"):
        load_settings({"FOVEA_MAX_IMAGE": "3"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FOVEA_PORT", "65536"),
        ("FOVEA_PORT", "http"),
        ("FOVEA_DTYPE", "int8"),
        ("FOVEA_WORKERS", "tpu:vision+language"),
        ("FOVEA_REQUEST_SECONDS", "0"),
        ("FOVEA_MEDIA_ALLOWED_DOMAINS", "a.example,http://b.example"),
        ("FOVEA_MEDIA_FOLDER", "/no/such/folder"),
        ("FOVEA_MEDIA_FOLDER", "."),
        ("FOVEA_MEDIA_FOLDER", "/etc/../etc"),
        ("FOVEA_MEDIA_FOLDER", "/etc/hostname"),
    ],
)
def test_a_value_out_of_range_stops_and_names_the_variable(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(f"{name}='{value}'")):
        load_settings({name: value})


def test_settings_cannot_be_changed() -> None:
    settings = load_settings({})
    with pytest.raises(ValueError, match="frozen"):
        settings.server.port = 1  # type: ignore[misc]


def test_every_field_is_described_and_unique() -> None:
    names = [variable(name) for _, name, _ in fields()]
    assert len(names) == len(set(names))
    assert all(field.description for _, _, field in fields())


def test_images_come_from_the_public_internet_alone_unless_settings_say_otherwise() -> None:
    assert not load_settings({}).images.media_allow_private
    assert load_settings({}).images.media_folder == ""
    opened = load_settings({"FOVEA_MEDIA_ALLOW_PRIVATE": "1", "FOVEA_MEDIA_FOLDER": "/etc"}).images
    assert (opened.media_allow_private, opened.media_folder) == (True, "/etc")
