"""The room of the chapter checkpoint_damage: Crashes, damaged files, full disks, untrusted files."""
