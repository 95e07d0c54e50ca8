"""The diagrams of the chapters, a module for each: functions that draw from the numbers of the chapter."""
