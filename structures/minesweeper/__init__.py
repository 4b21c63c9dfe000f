"""Natural joins by gaps: Minesweeper over ordered indexes (*Beyond Worst-case Analysis for Joins with Minesweeper*). Start with
`minesweeper.Minesweeper`."""
